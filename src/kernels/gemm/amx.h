// Kernels for AMX-INT8 (with AVX-512); called through the table in gemm.cc only.
#pragma once

#include "kernels/gemm/kernel_task.h"

namespace tw::kernels::amx {

// Weights of the format times q8 activations for blocks of 16 rows: amx_q8.cc. Computes the first
// task.m / 16 * 16 rows; the caller gives the rest to another q8 kernel, whose results are the
// same bit for bit.
template <WeightFormat format>
void gemm_q8(const GemmTask& task);

inline constexpr int kBlockRows = 16;

}  // namespace tw::kernels::amx
