// C[M, N] = A[M, K] * W[N, K]^T, the operation that all linear layers are made of.
//
// A GEMM is two steps, so that activations are prepared once and shared by all threads (and by
// all weights that read the same input, such as gate and up):
//   1. prepare_activations: rows of fp32 A -> the form that the weight's kernel multiplies
//      (fp32, bf16, or int8 with a scale per group of 32 or per row), split over threads by rows;
//   2. gemm: each thread computes a range of panels (16 output channels each).
// Between the two lies a barrier of the caller.
//
// Rounding. The order of operations belongs to the activation format, not to the instruction set:
//   f32:  acc = fma(weight[k], a[k], acc), in order of k
//   q8:   per group of 32 the products are summed exactly in int32 (zero point taken off), then
//         acc = fma(float(sum), weight_scale * a_scale, acc), and, where there are minimums,
//         acc = fma(minimum, a_scale * a_sum, acc); groups in order (of 16: two sums per group)
//   int8: the products of all of K are summed exactly in int32, then
//         acc = float(sum) * weight_scale * a_scale
//   fp8:  weights have a scale per 128 of K: products without scales are summed as for f32, then
//         acc = fma(group_sum, weight_scale, acc); groups in order
//   bf16: as the processor's bf16 instructions do it: equal within a kernel, not between kernels;
//         quantized weights are rounded to bf16 first; of fp8, the scale relative to the channel's
//         largest is in the rounded weight, and the finished sum meets the largest
// Then acc *= output_scale, where the weight has them, and c = acc + bias, or c += acc + bias. So
// f32, q8 and int8 kernels of all instruction sets agree bit for bit, and in every kernel a row
// does not depend on M, on the thread count or on the rows computed beside it.
//
// An activation that is NaN or infinite makes its own row of C NaN (or infinite), nothing else.
#pragma once

#include <cstdint>
#include <span>

#include "core/cpu.h"
#include "core/status.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/gemm/packed_weight.h"

namespace tw::kernels {

// The form in which a kernel reads its activations. Rows are padded with zeros to a multiple of
// kSuperGroup elements, so that one preparation serves weights of every format.
enum class ActivationFormat : uint8_t {
  f32,   // [M, K] float
  bf16,  // [M, K] bf16
  q8,    // [M, K] int8 within [-127, 127], and an ActivationGroup per row and group of 32
  int8,  // [M, K] int8 within [-127, 127], and an ActivationGroup per row
};

// Groups smaller than this (and their scale) count as zero: 127 / max|x| would overflow.
inline constexpr float kSmallestQuantizedMagnitude = 1e-30f;

// What the q8 kernels need to know of 32 activations, and the int8 kernels of a row:
// x = scale * quant, scale = max|x| / 127.
struct ActivationGroup {
  float scale;
  float scaled_sum;        // scale * sum
  int32_t sum;             // of the quants
  int32_t first_half_sum;  // of the first 16 of 32; 0 for rows
};

// How exact the activations are kept. `bf16` allows what is fastest: bf16 (or fp32) activations for
// bf16 weights, and int8 (q8) ones for quantized weights. `f32` keeps them as they are; for
// quantized weights that is a slower path, meant for checking.
enum class ActivationPrecision : uint8_t { bf16, f32 };

// Prepared activations inside caller-owned memory.
struct PreparedActivations {
  ActivationFormat format = ActivationFormat::f32;
  int64_t m = 0;
  int64_t k = 0;
  int64_t row_stride = 0;             // elements between rows of `values`
  std::byte* values = nullptr;        // f32, bf16 or int8; 64-byte aligned rows
  ActivationGroup* groups = nullptr;  // q8 and int8: [M, groups_per_row]
  int64_t groups_per_row = 0;
  int64_t group_stride = 0;  // groups between rows; those behind the row's are zero
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
  Isa isa;                                // level whose baseline it needs
  bool (*supported)(const CpuFeatures&);  // and whatever it needs beyond that
  WeightFormat format;
  ActivationFormat activations;
  // Computes panels [panels.begin, panels.end) for all rows of A.
  void (*run)(const GemmArguments& arguments, Range panels);
  // Converts rows [rows.begin, rows.end) of A[M, K] into `out`. Kernels with the same activation
  // format prepare the same bytes, so one preparation serves them all.
  void (*prepare)(Matrix<const float> a, Range rows, const PreparedActivations& out);
  // Faster than the others of its format for the rows of prompts, of which there are many, and too
  // slow for few.
  bool for_prompts = false;
};

// Every kernel there is, best first for each format; tests and benchmarks iterate over it.
std::span<const GemmKernel> gemm_kernels();

// The best kernel for a format on these features; scalar kernels support everything.
const GemmKernel& select_gemm(WeightFormat format, ActivationPrecision precision,
                              const CpuFeatures& features);

// The best kernel for rows of prompts, of which there are usually many: select_gemm's unless one is
// faster for those alone. Which of the two computes a row may depend on nothing but what the row is
// (a prompt's token, or a generated one), or its bits would depend on its company.
const GemmKernel& select_prefill_gemm(WeightFormat format, ActivationPrecision precision,
                                      const CpuFeatures& features);

int64_t element_size(ActivationFormat format);  // bytes

// Bytes of caller-owned memory that prepared activations of up to max_m rows need, and their
// layout inside `memory` (64-byte aligned) for m <= max_m rows.
size_t prepared_activations_size(ActivationFormat format, int64_t max_m, int64_t k);
PreparedActivations layout_prepared_activations(ActivationFormat format, int64_t m, int64_t k,
                                                std::byte* memory);

// Checks shapes, strides, alignment and formats of a call, for use where calls are recorded (the
// hot path only asserts).
Status validate(const GemmKernel& kernel, const GemmArguments& arguments);

}  // namespace tw::kernels
