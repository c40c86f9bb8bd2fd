// Models that several ranks compute together.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/tensor_parallel.h"
#include "weights/checkpoint.h"

namespace tw::testing_support {

// Ranks of one thread each but the last, which has two.
inline std::vector<int> team_sizes(int num_ranks) {
  std::vector<int> sizes(static_cast<size_t>(num_ranks), 1);
  if (num_ranks > 1) sizes.back() = 2;
  return sizes;
}

// A model and what it needs to live.
struct Parallel {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<TeamGroup> teams;
  Expected<std::unique_ptr<Model>> model;

  Parallel(const std::filesystem::path& path, int num_ranks,
           kernels::ActivationPrecision precision = kernels::ActivationPrecision::f32,
           const ExpertSharding& experts = {}) {
    auto opened = Checkpoint::open(path);
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    checkpoint = std::move(*opened);
    teams = std::make_unique<TeamGroup>(team_sizes(num_ranks));
    WeightLoader loader(*checkpoint, teams->team(0), {*usable_cpu_features(), precision});
    loader.experts = experts;
    model = load_model(loader, *teams);
  }
};

inline std::filesystem::path test_model(const std::string& name) {
  return std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / name;
}

inline std::vector<int32_t> some_tokens(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>((i * i * 37 + 11) % 251);
  return tokens;
}

}  // namespace tw::testing_support
