// The norms over Vec (math/vector_scalar.h).
//
// A row's sum runs in four vectors, element i in vector (i / 16) % 4 and lane i % 16: enough
// additions in flight to hide their latency, and an order that no instruction set changes.
#pragma once

#include "kernels/norm/norm.h"

namespace tw::kernels {

template <typename Vec, typename Term>
inline float sum_of_terms(int64_t n, Term term) {
  Vec sum[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int part = 0; part < 4; ++part) {
      sum[part] = term(sum[part], i + 16 * part, int64_t{16});
    }
  }
  for (int part = 0; i < n; i += 16, ++part) {
    sum[part] = term(sum[part], i, n - i < 16 ? n - i : int64_t{16});
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])).reduce_add();
}

// Calls visit(first element, count <= 16) over a row; whole vectors get the constant 16, so that
// their masks fold away.
template <typename Vec, typename Visit>
inline void for_each_vector(int64_t n, Visit visit) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) visit(i, int64_t{16});
  if (i < n) visit(i, n - i);
}

template <typename Vec>
inline float inverse_rms(const float* x, int64_t n, float epsilon) {
  const float squares = sum_of_terms<Vec>(n, [x](const Vec& sum, int64_t i, int64_t count) {
    const Vec value = Vec::load_first(x + i, count);
    return fma(value, value, sum);
  });
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + epsilon);
}

template <typename Vec>
inline void scale_row(const float* x, const float* weight, float weight_offset, float scale,
                      int64_t n, float* out) {
  const Vec scales = Vec::broadcast(scale);
  const Vec offset = Vec::broadcast(weight_offset);
  for_each_vector<Vec>(n, [&](int64_t i, int64_t count) {
    const Vec normed = Vec::load_first(x + i, count) * scales;
    (normed * (Vec::load_first(weight + i, count) + offset)).store_first(out + i, count);
  });
}

template <typename Vec>
void rms_norm(const RmsNormArguments& a, Range rows) {
  const int64_t n = a.x.cols;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = a.x.data + row * a.x.row_stride;
    float* out = a.out.data + row * a.out.row_stride;
    scale_row<Vec>(x, a.weight, a.weight_offset, inverse_rms<Vec>(x, n, a.epsilon), n, out);
  }
}

template <typename Vec>
void add_normed(const RmsNormArguments& a, Range rows) {
  const int64_t n = a.x.cols;
  const Vec offset = Vec::broadcast(a.weight_offset);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = a.x.data + row * a.x.row_stride;
    float* out = a.out.data + row * a.out.row_stride;
    const Vec scale = Vec::broadcast(inverse_rms<Vec>(x, n, a.epsilon));
    for_each_vector<Vec>(n, [&](int64_t i, int64_t count) {
      const Vec normed = Vec::load_first(x + i, count) * scale;
      const Vec weighted = normed * (Vec::load_first(a.weight + i, count) + offset);
      (Vec::load_first(out + i, count) + weighted).store_first(out + i, count);
    });
  }
}

template <typename Vec>
void add_rms_norm(const AddRmsNormArguments& a, Range rows) {
  const int64_t n = a.residual.cols;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* delta = a.delta.data + row * a.delta.row_stride;
    float* residual = a.residual.data + row * a.residual.row_stride;
    float* out = a.out.data + row * a.out.row_stride;
    for_each_vector<Vec>(n, [&](int64_t i, int64_t count) {
      const Vec sum = Vec::load_first(residual + i, count) + Vec::load_first(delta + i, count);
      sum.store_first(residual + i, count);
    });
    const float scale = inverse_rms<Vec>(residual, n, a.epsilon);
    scale_row<Vec>(residual, a.weight, a.weight_offset, scale, n, out);
  }
}

template <typename Vec>
void layer_norm(const LayerNormArguments& a, Range rows) {
  const int64_t n = a.x.cols;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = a.x.data + row * a.x.row_stride;
    float* out = a.out.data + row * a.out.row_stride;
    const float sum = sum_of_terms<Vec>(n, [x](const Vec& total, int64_t i, int64_t count) {
      return total + Vec::load_first(x + i, count);
    });
    const Vec mean = Vec::broadcast(sum / static_cast<float>(n));
    // Deviations, not squares minus the squared mean: that difference cancels.
    const float squares = sum_of_terms<Vec>(n, [&](const Vec& total, int64_t i, int64_t count) {
      float deviations[16];
      (Vec::load_first(x + i, count) - mean).store(deviations);
      // Lanes past the row hold 0 - mean, which must not count.
      const Vec deviation = Vec::load_first(deviations, count);
      return fma(deviation, deviation, total);
    });
    const Vec scale =
        Vec::broadcast(1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + a.epsilon));
    for_each_vector<Vec>(n, [&](int64_t i, int64_t count) {
      const Vec normed = (Vec::load_first(x + i, count) - mean) * scale;
      Vec result = normed * Vec::load_first(a.weight + i, count);
      if (a.bias != nullptr) result = result + Vec::load_first(a.bias + i, count);
      result.store_first(out + i, count);
    });
  }
}

}  // namespace tw::kernels
