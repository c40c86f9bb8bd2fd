// The end of a mixture of experts: a token's result is the weighted sum of what its experts gave,
//
//   out[t] (+)= sum_j weights[t, j] * expert_output[rows[t, j]] + shared_weight[t] * shared[t]
//
// added in the order of the choice, then the shared expert: no row depends on another token.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "core/thread_team.h"

namespace tw::kernels {

struct CombineArguments {
  int32_t top_k = 0;
  const int32_t* rows = nullptr;      // [tokens, top_k] of expert_output; below 0: no summand
  const float* weights = nullptr;     // [tokens, top_k]; null: ones
  Matrix<const float> expert_output;  // [tokens * top_k, n]
  Matrix<const float> shared;         // [tokens, n]; without data: none
  Matrix<const float> shared_gate;    // [tokens, 1]: sigmoid of it is the weight; without data: 1
  Matrix<float> out;                  // [tokens, n]
  bool accumulate = false;
};

}  // namespace tw::kernels
