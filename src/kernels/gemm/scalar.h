// The scalar kernels: the reference that defines what every other kernel computes, and the path of
// processors without AVX2.
#pragma once

#include "kernels/gemm/gemm.h"

namespace tw::kernels::scalar {

// Any weight format; the format is read from the weight.
void gemm_f32(const GemmArguments& arguments, Range panels);
// Weights of integers with scales of groups of 16 or 32.
void gemm_q8(const GemmArguments& arguments, Range panels);
// int8 weights.
void gemm_int8(const GemmArguments& arguments, Range panels);

void prepare_f32(Matrix<const float> a, Range rows, const PreparedActivations& out);
void prepare_bf16(Matrix<const float> a, Range rows, const PreparedActivations& out);
void prepare_q8(Matrix<const float> a, Range rows, const PreparedActivations& out);
void prepare_int8(Matrix<const float> a, Range rows, const PreparedActivations& out);

}  // namespace tw::kernels::scalar
