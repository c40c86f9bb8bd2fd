// What a load asks: prompts, and how many tokens each answer gets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/load_client.h"
#include "core/status.h"

namespace tw {

struct RandomLoad {
  int32_t num_prompts = 100;
  int32_t input_len = 1024;
  int32_t output_len = 128;
  double range_ratio = 1.0;  // the shortest length as a share of the longest
  uint64_t seed = 1;
};

// Random token ids that are ordinary in nearly every vocabulary; lengths uniform in their range.
std::vector<LoadRequest> random_requests(const RandomLoad& load);

// First turns of conversations in ShareGPT's form ([{"conversations": [{"value"}, {"value"}]}]), in
// an order by the seed. An answer gets `output_len` tokens, or with 0 as many as the recorded one
// has, at four characters a token.
Expected<std::vector<LoadRequest>> sharegpt_requests(const std::string& path, int32_t num_prompts,
                                                     int32_t output_len, uint64_t seed);

}  // namespace tw
