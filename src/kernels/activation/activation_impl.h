// The activations over Vec (math/vector_scalar.h).
#pragma once

#include "kernels/activation/activation.h"
#include "kernels/math/functions.h"

namespace tw::kernels {

// Calls body(function on Vec) with the function of an activation: one branch per call instead of
// one per vector.
template <typename Vec, typename Body>
inline void with_activation(Activation activation, Body body) {
  switch (activation) {
    case Activation::silu:
      return body([](Vec x) { return vector_silu(x); });
    case Activation::gelu:
      return body([](Vec x) { return vector_gelu(x); });
    case Activation::gelu_tanh:
      return body([](Vec x) { return vector_gelu_tanh(x); });
    case Activation::sigmoid:
      return body([](Vec x) { return vector_sigmoid(x); });
  }
}

template <typename Vec>
void gated_activation(const GatedActivationArguments& a, Range rows) {
  with_activation<Vec>(a.activation, [&](auto function) {
    const int64_t n = a.out.cols;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* gate = a.gate.data + row * a.gate.row_stride;
      const float* up = a.up.data + row * a.up.row_stride;
      float* out = a.out.data + row * a.out.row_stride;
      // A product by 1 leaves every number as it is.
      const Vec scale = Vec::broadcast(a.row_scales == nullptr ? 1.0f : a.row_scales[row]);
      int64_t i = 0;
      for (; i + 16 <= n; i += 16) {
        (function(Vec::load(gate + i) * scale) * (Vec::load(up + i) * scale)).store(out + i);
      }
      if (i == n) continue;
      const Vec last = function(Vec::load_first(gate + i, n - i) * scale);
      (last * (Vec::load_first(up + i, n - i) * scale)).store_first(out + i, n - i);
    }
  });
}

template <typename Vec>
void clamped_swiglu(const ClampedSwiGluArguments& a, Range rows) {
  const Vec limit = Vec::broadcast(a.parameters.limit);
  const Vec lowest = Vec::broadcast(-a.parameters.limit);
  const Vec alpha = Vec::broadcast(-a.parameters.alpha);
  const Vec one = Vec::broadcast(1.0f);
  const int64_t n = a.out.cols;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* gate = a.gate.data + row * a.gate.row_stride;
    const float* up = a.up.data + row * a.up.row_stride;
    float* out = a.out.data + row * a.out.row_stride;
    for (int64_t i = 0; i < n; i += 16) {
      // NaN stays: of the two, the second operand is kept.
      const Vec g = min(limit, Vec::load_first(gate + i, n - i));
      const Vec u = max(lowest, min(limit, Vec::load_first(up + i, n - i)));
      const Vec glu = g / (one + vector_exp(g * alpha));
      (glu * (u + one)).store_first(out + i, n - i);
    }
  }
}

template <typename Vec>
void interleaved_activation(const InterleavedActivationArguments& a, Range rows) {
  with_activation<Vec>(a.activation, [&](auto function) {
    const int64_t n = a.out.cols;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* pair = a.gate_up.data + row * a.gate_up.row_stride;
      float* out = a.out.data + row * a.out.row_stride;
      for (int64_t i = 0; i < n; i += 16, pair += 32) {
        const Vec result = function(Vec::load(pair)) * Vec::load(pair + 16);
        if (n - i >= 16) {
          result.store(out + i);
        } else {
          result.store_first(out + i, n - i);
        }
      }
    }
  });
}

template <typename Vec>
void plain_activation(const ActivationArguments& a, Range rows) {
  with_activation<Vec>(a.activation, [&](auto function) {
    const int64_t n = a.out.cols;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* x = a.x.data + row * a.x.row_stride;
      float* out = a.out.data + row * a.out.row_stride;
      int64_t i = 0;
      for (; i + 16 <= n; i += 16) function(Vec::load(x + i)).store(out + i);
      if (i < n) function(Vec::load_first(x + i, n - i)).store_first(out + i, n - i);
    }
  });
}

template <typename Vec>
void soft_cap(const SoftCapArguments& a, Range columns) {
  const Vec cap = Vec::broadcast(a.cap);
  const Vec inverse = Vec::broadcast(1.0f / a.cap);
  for (int64_t row = 0; row < a.x.rows; ++row) {
    float* x = a.x.data + row * a.x.row_stride;
    for (int64_t i = columns.begin; i < columns.end; i += 16) {
      const int64_t count = columns.end - i < 16 ? columns.end - i : int64_t{16};
      (cap * vector_tanh(Vec::load_first(x + i, count) * inverse)).store_first(x + i, count);
    }
  }
}

}  // namespace tw::kernels
