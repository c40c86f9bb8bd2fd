// The logits kernels over Vec (math/vector_scalar.h).
#pragma once

#include "kernels/math/functions.h"
#include "kernels/sampling/logits.h"

namespace tw::kernels {

constexpr float kMinusInfinity = -__builtin_inff();

// Lanes past the end of a row read as -infinity: they change neither a maximum nor a sum.
template <typename Vec>
inline Vec load_logits(const float* logits, int64_t count) {
  float padded[16];
  for (int i = 0; i < 16; ++i) padded[i] = i < count ? logits[i] : kMinusInfinity;
  return Vec::load(padded);
}

template <typename Vec>
inline float row_maximum(const float* logits, int64_t n) {
  Vec best[4];
  for (Vec& part : best) part = Vec::broadcast(kMinusInfinity);
  int64_t i = 0;
  // max() returns its second operand when one is NaN, so a NaN never enters `best`.
  for (; i + 64 <= n; i += 64) {
    for (int part = 0; part < 4; ++part) {
      best[part] = max(Vec::load(logits + i + 16 * part), best[part]);
    }
  }
  for (; i < n; i += 16) best[0] = max(load_logits<Vec>(logits + i, n - i), best[0]);
  return max(max(best[0], best[1]), max(best[2], best[3])).reduce_max();
}

template <typename Vec>
int64_t logits_argmax(const float* logits, int64_t n) {
  const float best = row_maximum<Vec>(logits, n);
  for (int64_t i = 0; i < n; ++i) {
    if (logits[i] == best) return i;
  }
  return 0;
}

// Sum of e^(scale * logits - shift); each exponential is stored where `out` is not null.
template <typename Vec>
inline float sum_of_exponentials(const float* logits, int64_t n, float scale, float shift,
                                 float* out) {
  const Vec scales = Vec::broadcast(scale);
  const Vec minus_shift = Vec::broadcast(-shift);
  Vec sum[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int part = 0; part < 4; ++part) {
      const Vec value = vector_exp(fma(Vec::load(logits + i + 16 * part), scales, minus_shift));
      if (out != nullptr) value.store(out + i + 16 * part);
      sum[part] = sum[part] + value;
    }
  }
  for (; i < n; i += 16) {
    const Vec value = vector_exp(fma(load_logits<Vec>(logits + i, n - i), scales, minus_shift));
    if (out != nullptr) value.store_first(out + i, n - i);
    sum[0] = sum[0] + value;
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])).reduce_add();
}

template <typename Vec>
float logits_log_sum_exp(const float* logits, int64_t n) {
  const float best = row_maximum<Vec>(logits, n);
  if (best == kMinusInfinity) return kMinusInfinity;
  return best + __builtin_logf(sum_of_exponentials<Vec>(logits, n, 1.0f, best, nullptr));
}

template <typename Vec>
float logits_softmax(const float* logits, int64_t n, float scale, float* out) {
  const float best = row_maximum<Vec>(logits, n);
  if (best == kMinusInfinity) {
    for (int64_t i = 0; i < n; ++i) out[i] = 0.0f;
    return 0.0f;
  }
  const float sum = sum_of_exponentials<Vec>(logits, n, scale, scale * best, out);
  const Vec inverse = Vec::broadcast(1.0f / sum);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) (Vec::load(out + i) * inverse).store(out + i);
  if (i < n) (Vec::load_first(out + i, n - i) * inverse).store_first(out + i, n - i);
  return sum;
}

}  // namespace tw::kernels
