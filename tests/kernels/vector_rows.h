// What the tests of the vector kernels share: the rows of a table that this machine supports, and
// random rows.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "kernels/kernel_table.h"

namespace tw::kernels {

template <typename Functions>
std::vector<const KernelRow<Functions>*> machine_rows(std::span<const KernelRow<Functions>> table) {
  const auto features = usable_cpu_features();
  TW_CHECK(features.has_value());
  std::vector<const KernelRow<Functions>*> rows;
  for (const KernelRow<Functions>& row : table) {
    if (row.supported(*features)) rows.push_back(&row);
  }
  return rows;
}

template <typename Functions>
std::string row_name(const testing::TestParamInfo<const KernelRow<Functions>*>& test) {
  return test.param->name;
}

inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Distance in units in the last place of the exact value.
inline double units_in_last_place(float value, double exact) {
  const auto nearest = static_cast<float>(exact);
  const float next = std::nextafter(std::abs(nearest), INFINITY);
  return std::abs(value - exact) / (double{next} - std::abs(double{nearest}));
}

}  // namespace tw::kernels
