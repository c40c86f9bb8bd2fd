// What sums over ranks must be, bit for bit.
#pragma once

#include <span>
#include <vector>

namespace tw::testing_support {

inline std::vector<float> in_pairs(std::span<const std::vector<float>> operands) {
  if (operands.size() == 1) return operands[0];
  const size_t middle = operands.size() - operands.size() / 2;
  std::vector<float> sum = in_pairs(operands.first(middle));
  const std::vector<float> second = in_pairs(operands.subspan(middle));
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  return sum;
}

}  // namespace tw::testing_support
