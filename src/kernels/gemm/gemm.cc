#include "kernels/gemm/gemm.h"

#include <algorithm>

#include "core/check.h"
#include "kernels/gemm/scalar.h"

namespace tw::kernels {
namespace {

using enum WeightFormat;
using Format = ActivationFormat;

bool always(const CpuFeatures&) {
  return true;
}

// Best first for each weight format. With precision bf16 the first supported row of a format is
// taken, with f32 the first whose activations are f32.
constexpr GemmKernel kKernels[] = {
    {"scalar_bf16_f32", Isa::scalar, always, bf16, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
    {"scalar_q4_0_q8", Isa::scalar, always, q4_0, Format::q8, scalar::gemm_q8, scalar::prepare_q8},
    {"scalar_q4_1_q8", Isa::scalar, always, q4_1, Format::q8, scalar::gemm_q8, scalar::prepare_q8},
    {"scalar_q4_k_q8", Isa::scalar, always, q4_k, Format::q8, scalar::gemm_q8, scalar::prepare_q8},
    {"scalar_q8_0_q8", Isa::scalar, always, q8_0, Format::q8, scalar::gemm_q8, scalar::prepare_q8},
    {"scalar_q8_1_q8", Isa::scalar, always, q8_1, Format::q8, scalar::gemm_q8, scalar::prepare_q8},
    {"scalar_q8_k_q8", Isa::scalar, always, q8_k, Format::q8, scalar::gemm_q8, scalar::prepare_q8},
    {"scalar_q8_k16_q8", Isa::scalar, always, q8_k16, Format::q8, scalar::gemm_q8,
     scalar::prepare_q8},
    {"scalar_q4_0_f32", Isa::scalar, always, q4_0, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
    {"scalar_q4_1_f32", Isa::scalar, always, q4_1, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
    {"scalar_q4_k_f32", Isa::scalar, always, q4_k, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
    {"scalar_q8_0_f32", Isa::scalar, always, q8_0, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
    {"scalar_q8_1_f32", Isa::scalar, always, q8_1, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
    {"scalar_q8_k_f32", Isa::scalar, always, q8_k, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
    {"scalar_q8_k16_f32", Isa::scalar, always, q8_k16, Format::f32, scalar::gemm_f32,
     scalar::prepare_f32},
};

const char* to_string(Format format) {
  switch (format) {
    case Format::f32:
      return "f32";
    case Format::bf16:
      return "bf16";
    case Format::q8:
      return "q8";
  }
  return "?";
}

}  // namespace

std::span<const GemmKernel> gemm_kernels() {
  return kKernels;
}

const GemmKernel& select_gemm(WeightFormat format, ActivationPrecision precision,
                              const CpuFeatures& features) {
  const auto* kernel =
      std::find_if(std::begin(kKernels), std::end(kKernels), [&](const GemmKernel& candidate) {
        return candidate.format == format && candidate.supported(features) &&
               (precision == ActivationPrecision::bf16 || candidate.activations == Format::f32);
      });
  TW_CHECK(kernel != std::end(kKernels));
  return *kernel;
}

Status validate(const GemmKernel& kernel, const GemmArguments& arguments) {
  constexpr auto kInvalid = ErrorCode::invalid_argument;
  const PreparedActivations& a = arguments.a;
  const Matrix<float>& c = arguments.c;
  if (arguments.weight == nullptr || arguments.weight->empty()) {
    return error(kInvalid, "gemm {}: no weight", kernel.name);
  }
  const PackedWeight& weight = *arguments.weight;
  if (weight.format() != kernel.format) {
    return error(kInvalid, "gemm {}: weight is {}, the kernel reads {}", kernel.name,
                 traits(weight.format()).name, traits(kernel.format).name);
  }
  if (a.format != kernel.activations) {
    return error(kInvalid, "gemm {}: activations are {}, the kernel reads {}", kernel.name,
                 to_string(a.format), to_string(kernel.activations));
  }
  if (a.m < 0 || a.k != weight.k()) {
    return error(kInvalid, "gemm {}: activations [{}, {}] do not fit weight [{}, {}]", kernel.name,
                 a.m, a.k, weight.n(), weight.k());
  }
  if (c.rows != a.m || c.cols != weight.n() || c.row_stride < c.cols) {
    return error(kInvalid, "gemm {}: output [{}, {}] with row stride {} should be [{}, {}]",
                 kernel.name, c.rows, c.cols, c.row_stride, a.m, weight.n());
  }
  if (a.m == 0) return {};
  if (c.data == nullptr || a.values == nullptr) {
    return error(kInvalid, "gemm {}: {} is null", kernel.name,
                 c.data == nullptr ? "output" : "activations");
  }
  const PreparedActivations expected = layout_prepared_activations(a.format, 0, a.k, nullptr);
  if (reinterpret_cast<uintptr_t>(a.values) % 64 != 0 || a.row_stride != expected.row_stride ||
      a.groups_per_row != expected.groups_per_row ||
      (a.format == Format::q8 && a.groups == nullptr)) {
    return error(kInvalid,
                 "gemm {}: activations (row stride {}, {} groups) are not laid out by "
                 "layout_prepared_activations (row stride {}, {} groups, 64-byte aligned)",
                 kernel.name, a.row_stride, a.groups_per_row, expected.row_stride,
                 expected.groups_per_row);
  }
  return {};
}

}  // namespace tw::kernels
