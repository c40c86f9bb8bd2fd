// Kernels for AMX (with AVX-512); called through the table in gemm.cc only.
#pragma once

#include "kernels/gemm/kernel_task.h"

namespace tw::kernels::amx {

// Weights of the format times q8 activations for blocks of 16 rows: amx_q8.cc. Computes the first
// task.m / 16 * 16 rows; the caller gives the rest to another q8 kernel, whose results are the
// same bit for bit.
template <WeightFormat format>
void gemm_q8(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q4_0>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q4_1>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q4_k>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q4_z>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::fp4>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::fp4_16>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q8_0>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q8_1>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q8_k>(const GemmTask& task);
template <>
void gemm_q8<WeightFormat::q8_k16>(const GemmTask& task);

inline constexpr int kBlockRows = 16;

// int8 weights times int8 activations, any number of rows: amx_int8.cc.
void gemm_int8(const GemmTask& task);

// fp8 weights times bf16 activations, any number of rows: amx_fp8.cc. Needs AVX512-VBMI and
// AVX512-BF16.
void gemm_fp8(const GemmTask& task);

// bf16 weights times bf16 activations, any number of rows: amx_bf16.cc.
void gemm_bf16(const GemmTask& task);
void prepare_bf16(const PrepareTask& task);

// Quantized weights times bf16 activations, any number of rows, faster than gemm_q8 for many:
// amx_widened.cc. Needs AVX512-VBMI and AVX512-BF16.
template <WeightFormat format>
void gemm_widened(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q4_0>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q4_1>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q4_k>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q4_z>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::fp4>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::fp4_16>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q8_0>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q8_1>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q8_k>(const GemmTask& task);
template <>
void gemm_widened<WeightFormat::q8_k16>(const GemmTask& task);

}  // namespace tw::kernels::amx
