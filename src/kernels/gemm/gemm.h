// C[M, N] = A[M, K] * W[N, K]^T, the operation that all linear layers are made of.
//
// A GEMM is two steps, so that activations are prepared once and shared by all threads (and by
// all weights that read the same input, such as gate and up):
//   1. prepare_activations: rows of fp32 A -> the form that the weight's kernel multiplies
//      (fp32, bf16, or int8 with a scale per group of 32), split over threads by rows;
//   2. gemm: each thread computes a range of panels (16 output channels each).
// Between the two lies a barrier of the caller.
//
// Rounding: products are summed in fp32 in order of k (bf16, f32), or exactly in int32 inside a
// group of 32 and then in fp32 in order of the groups. The order does not depend on M, on the
// thread count or on which rows are computed together.
#pragma once

#include <cstdint>
#include <span>

#include "core/cpu.h"
#include "core/status.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/gemm/packed_weight.h"

namespace tw::kernels {

// The form in which a kernel reads its activations.
enum class ActivationFormat : uint8_t {
  f32,   // [M, K] float
  bf16,  // [M, K] bf16, rows padded with zeros to padded_k
  q8,    // [M, K] int8, rows padded with zeros to a multiple of 256; per row and group of 32 a
         // float scale and an int32 sum of the group's quants
};

// How exact the activations of bf16 weights are kept. Quantized weights always use q8 unless
// `exact` asks for fp32 (a slow reference path used by tests).
enum class ActivationPrecision : uint8_t { bf16, f32 };

// Prepared activations inside caller-owned memory.
struct PreparedActivations {
  ActivationFormat format = ActivationFormat::f32;
  int64_t m = 0;
  int64_t k = 0;
  int64_t row_stride = 0;       // elements between rows of `values`
  std::byte* values = nullptr;  // f32, bf16 or int8
  float* scales = nullptr;      // q8: [M, groups_per_row]
  int32_t* sums = nullptr;      // q8: [M, groups_per_row]
  int64_t groups_per_row = 0;   // q8: padded_k / 32
};

// What happens to C on the way out.
enum class Epilogue : uint8_t {
  store,       // C = result
  accumulate,  // C += result (the residual stream)
};

struct GemmArguments {
  const PackedWeight* weight = nullptr;
  PreparedActivations a;
  Matrix<float> c;              // [M, N] fp32
  const float* bias = nullptr;  // [N] or null
  Epilogue epilogue = Epilogue::store;
};

// One kernel: a row of the table in gemm.cc.
struct GemmKernel {
  const char* name;
  Isa isa;  // level whose baseline it needs
  bool (*supported)(const CpuFeatures&);
  WeightFormat format;
  ActivationFormat activations;
  // Computes panels [panels.begin, panels.end) for all rows of A.
  void (*run)(const GemmArguments& arguments, Range panels);
  // Converts rows [rows.begin, rows.end) of A into `out`.
  void (*prepare)(Matrix<const float> a, Range rows, const PreparedActivations& out);
};

// Every kernel there is, best first for each format; tests and benchmarks iterate over it.
std::span<const GemmKernel> gemm_kernels();

// The best kernel for a format on these features. Never null: scalar rows support everything.
const GemmKernel& select_gemm(WeightFormat format, ActivationPrecision precision,
                              const CpuFeatures& features);

// Bytes of caller-owned memory that prepared activations of up to max_m rows need, and their
// layout inside `memory` (64-byte aligned) for m <= max_m rows.
size_t prepared_activations_size(ActivationFormat format, int64_t max_m, int64_t k);
PreparedActivations layout_prepared_activations(ActivationFormat format, int64_t m, int64_t k,
                                                std::byte* memory);

// Checks shapes, strides, alignment and formats of a call, for use where calls are recorded (the
// hot path only asserts).
Status validate(const GemmKernel& kernel, const GemmArguments& arguments);

}  // namespace tw::kernels
