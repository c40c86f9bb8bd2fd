// The router of a mixture of experts: which experts a token goes to, and with what weights.
//
//   scores  = softmax(logits) or sigmoid(logits), in fp32
//   chosen  = the top_k largest of scores (+ correction bias), within the best groups if limited
//   weights = scores of the chosen / their sum (if renormalized) * scale
//
// Shazeer et al., "Outrageously Large Neural Networks" (2017); the correction bias, which takes
// part in the choice alone, and the limit to groups of experts: DeepSeek-AI, "DeepSeek-V2" and
// "DeepSeek-V3 Technical Report" (2024). Of equal scores the lower expert wins. A NaN logit is
// chosen last, so that the choice always is top_k different experts.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "core/tensor.h"
#include "core/thread_team.h"

namespace tw::kernels {

inline constexpr int32_t kMaxExperts = 1024;
inline constexpr int32_t kMaxTopK = 64;

enum class ExpertScore : uint8_t { softmax, sigmoid };

// What stands for a group of experts when the best groups are chosen.
enum class GroupScore : uint8_t {
  largest,          // its best expert's score          DeepSeek-V2
  sum_of_two_best,  // the sum of its two best          DeepSeek-V3, GLM-4.5
};

struct RouterConfig {
  int32_t num_experts = 0;
  int32_t top_k = 0;
  ExpertScore score = ExpertScore::softmax;
  // Groups are num_experts / num_groups neighbours; experts of the top_groups best may be chosen.
  int32_t num_groups = 1;
  int32_t top_groups = 1;
  GroupScore group_score = GroupScore::largest;
  bool renormalize = false;
  float scale = 1.0f;

  // Fails with unsupported or corrupt_data, naming the number that does not fit.
  Status validate() const;
};

struct RouterArguments {
  RouterConfig config;
  Matrix<const float> logits;              // [tokens, num_experts or more]
  const float* correction_bias = nullptr;  // [num_experts] or null
  int32_t* experts = nullptr;              // [tokens, top_k] out: best first
  float* weights = nullptr;                // [tokens, top_k] out
};

}  // namespace tw::kernels
