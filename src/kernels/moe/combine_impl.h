// The weighted sum of the experts' rows over Vec (math/vector_scalar.h).
#pragma once

#include "kernels/math/functions.h"
#include "kernels/moe/combine.h"

namespace tw::kernels {

template <typename Vec>
inline void combine_token(const CombineArguments& a, int64_t token) {
  const int64_t n = a.out.cols;
  const int32_t* rows = a.rows + token * a.top_k;
  float* out = a.out.data + token * a.out.row_stride;
  const float* shared =
      a.shared.data == nullptr ? nullptr : a.shared.data + token * a.shared.row_stride;
  Vec shared_weight = Vec::broadcast(1.0f);
  if (a.shared_gate.data != nullptr) {
    const Vec gate = Vec::broadcast(a.shared_gate.data[token * a.shared_gate.row_stride]);
    shared_weight = shared_weight / (shared_weight + vector_exp(Vec::zero() - gate));
  }
  for (int64_t i = 0; i < n; i += 16) {
    Vec sum = Vec::zero();
    for (int32_t j = 0; j < a.top_k; ++j) {
      if (rows[j] < 0) continue;
      const float* row = a.expert_output.data + rows[j] * a.expert_output.row_stride;
      const float weight = a.weights == nullptr ? 1.0f : a.weights[token * a.top_k + j];
      sum = fma(Vec::broadcast(weight), Vec::load_first(row + i, n - i), sum);
    }
    if (shared != nullptr) sum = fma(shared_weight, Vec::load_first(shared + i, n - i), sum);
    if (a.accumulate) sum = Vec::load_first(out + i, n - i) + sum;
    sum.store_first(out + i, n - i);
  }
}

template <typename Vec>
void combine(const CombineArguments& a, Range tokens) {
  for (int64_t token = tokens.begin; token < tokens.end; ++token) combine_token<Vec>(a, token);
}

}  // namespace tw::kernels
