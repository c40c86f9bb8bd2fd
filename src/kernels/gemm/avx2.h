// Kernels for AVX2, FMA and F16C; called through the table in gemm.cc only.
#pragma once

#include "kernels/gemm/kernel_task.h"

namespace tw::kernels::avx2 {

// Weights of the format times q8 activations: avx2_q8.cc. Explicit specializations, since those,
// unlike instantiations, are strong symbols.
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

// Weights of the format times fp32 activations: avx2_f32.cc.
template <WeightFormat format>
void gemm_f32(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::bf16>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q4_0>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q4_1>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q4_k>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q4_z>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::fp4>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::fp4_16>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q8_0>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q8_1>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q8_k>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::q8_k16>(const GemmTask& task);

template <>
void gemm_f32<WeightFormat::int8>(const GemmTask& task);
template <>
void gemm_f32<WeightFormat::fp8>(const GemmTask& task);

// int8 weights times int8 activations: avx2_int8.cc.
void gemm_int8(const GemmTask& task);

// avx2_prepare.cc
void prepare_f32(const PrepareTask& task);
void prepare_q8(const PrepareTask& task);
void prepare_int8(const PrepareTask& task);

}  // namespace tw::kernels::avx2
