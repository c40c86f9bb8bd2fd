// Normalization of rows: RMSNorm (Zhang and Sennrich, 2019) and LayerNorm.
//
// All sums are fp32 in a fixed order, so a row's result depends on nothing but the row, and is the
// same on every instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/kernel_table.h"

namespace tw::kernels {

// out = x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset)
//
// Rows may be anything that is normalized on its own: tokens, or heads of a token (q and k norms).
struct RmsNormArguments {
  Matrix<const float> x;          // [rows, n]
  Matrix<float> out;              // [rows, n]; may be x itself
  const float* weight = nullptr;  // [n]
  float epsilon = 1e-5f;
  float weight_offset = 0.0f;  // 1 for Gemma, whose checkpoints hold weight - 1
};

// residual += delta, then out = RMSNorm(residual): one pass over memory instead of two.
struct AddRmsNormArguments {
  Matrix<const float> delta;      // [rows, n]
  Matrix<float> residual;         // [rows, n]
  Matrix<float> out;              // [rows, n]
  const float* weight = nullptr;  // [n]
  float epsilon = 1e-5f;
  float weight_offset = 0.0f;
};

// out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
struct LayerNormArguments {
  Matrix<const float> x;          // [rows, n]
  Matrix<float> out;              // [rows, n]; may be x itself
  const float* weight = nullptr;  // [n]
  const float* bias = nullptr;    // [n] or null
  float epsilon = 1e-5f;
};

// Each function computes rows [rows.begin, rows.end).
struct NormKernels {
  void (*rms_norm)(const RmsNormArguments& arguments, Range rows);
  void (*add_normed)(const RmsNormArguments& arguments, Range rows);  // out += instead of out =
  void (*add_rms_norm)(const AddRmsNormArguments& arguments, Range rows);
  void (*layer_norm)(const LayerNormArguments& arguments, Range rows);
};

std::span<const KernelRow<NormKernels>> norm_kernels();
const NormKernels& select_norm(const CpuFeatures& features);

namespace scalar {
extern const NormKernels kNormKernels;
}
namespace avx2 {
extern const NormKernels kNormKernels;
}
namespace avx512 {
extern const NormKernels kNormKernels;
}

}  // namespace tw::kernels
