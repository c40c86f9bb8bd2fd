#include "kernels/gemm/gemm.h"

#include <algorithm>

#include "core/check.h"
#include "kernels/gemm/amx.h"
#include "kernels/gemm/avx2.h"
#include "kernels/gemm/avx512.h"
#include "kernels/gemm/kernel_task.h"
#include "kernels/gemm/scalar.h"

namespace tw::kernels {
namespace {

using enum WeightFormat;
using Format = ActivationFormat;

bool always(const CpuFeatures&) {
  return true;
}
bool has_avx2(const CpuFeatures& features) {
  return features.avx2;
}
bool has_avx512(const CpuFeatures& features) {
  return features.avx512 && features.avx2;
}
bool has_avx512_vnni(const CpuFeatures& features) {
  return has_avx512(features) && features.avx512_vnni;
}
bool has_amx_bf16(const CpuFeatures& features) {
  return has_avx512(features) && features.amx_tile && features.amx_bf16;
}
bool has_amx_and_avx512_bf16(const CpuFeatures& features) {
  return has_amx_bf16(features) && features.avx512_vbmi && features.avx512_bf16;
}
bool has_amx_int8(const CpuFeatures& features) {
  return has_avx512_vnni(features) && features.amx_tile && features.amx_int8;
}

// The faces of the instruction sets' kernels, which know plain numbers only.
template <void (*kernel)(const GemmTask&)>
void run(const GemmArguments& arguments, Range panels) {
  const PackedWeight& weight = *arguments.weight;
  const PreparedActivations& a = arguments.a;
  kernel({.panels = weight.panel(0),
          .panel_size = weight.layout().size,
          .layout = weight.layout(),
          .n = weight.n(),
          .padded_k = weight.padded_k(),
          .m = a.m,
          .a = a.values,
          .a_stride = a.row_stride,
          .groups = a.groups,
          .groups_stride = a.group_stride,
          .c = arguments.c.data,
          .c_stride = arguments.c.row_stride,
          .output_scales = weight.output_scales().empty() ? nullptr : weight.output_scales().data(),
          .bias = arguments.bias,
          .accumulate = arguments.epilogue == Epilogue::accumulate,
          .panel_begin = panels.begin,
          .panel_end = panels.end});
}

template <void (*kernel)(const PrepareTask&)>
void prepare(Matrix<const float> a, Range rows, const PreparedActivations& out) {
  kernel({.a = a.data,
          .a_stride = a.row_stride,
          .row_begin = rows.begin,
          .row_end = rows.end,
          .k = out.k,
          .values = out.values,
          .stride = out.row_stride,
          .groups = out.groups,
          .groups_per_row = out.groups_per_row,
          .groups_stride = out.group_stride});
}

template <WeightFormat format>
constexpr GemmKernel avx2_q8(const char* name) {
  return {name,
          Isa::avx2,
          has_avx2,
          format,
          Format::q8,
          run<avx2::gemm_q8<format>>,
          prepare<avx2::prepare_q8>};
}
template <WeightFormat format>
constexpr GemmKernel avx2_f32(const char* name) {
  return {name,
          Isa::avx2,
          has_avx2,
          format,
          Format::f32,
          run<avx2::gemm_f32<format>>,
          prepare<avx2::prepare_f32>};
}
template <WeightFormat format>
constexpr GemmKernel avx512_q8(const char* name) {
  return {name,
          Isa::avx512,
          has_avx512_vnni,
          format,
          Format::q8,
          run<avx512::gemm_q8<format>>,
          prepare<avx512::prepare_q8>};
}
// Blocks of 16 rows by AMX, the rest by vectors: the results are the same bit for bit.
template <WeightFormat format>
void amx_then_vector_q8(const GemmTask& task) {
  if (task.m >= amx::kBlockRows) amx::gemm_q8<format>(task);
  GemmTask rest = task;
  const int64_t done = task.m / amx::kBlockRows * amx::kBlockRows;
  rest.m = task.m - done;
  rest.a += done * task.a_stride;
  rest.groups += done * task.groups_stride;
  rest.c += done * task.c_stride;
  avx512::gemm_q8<format>(rest);
}
template <WeightFormat format>
constexpr GemmKernel amx_q8(const char* name) {
  return {name,
          Isa::amx,
          has_amx_int8,
          format,
          Format::q8,
          run<amx_then_vector_q8<format>>,
          prepare<avx512::prepare_q8>};
}
template <WeightFormat format>
constexpr GemmKernel amx_widened(const char* name) {
  return {.name = name,
          .isa = Isa::amx,
          .supported = has_amx_and_avx512_bf16,
          .format = format,
          .activations = Format::bf16,
          .run = run<amx::gemm_widened<format>>,
          .prepare = prepare<amx::prepare_bf16>,
          .for_prompts = true};
}
constexpr GemmKernel scalar_q8(const char* name, WeightFormat format) {
  return {name, Isa::scalar, always, format, Format::q8, scalar::gemm_q8, scalar::prepare_q8};
}
constexpr GemmKernel scalar_f32(const char* name, WeightFormat format) {
  return {name, Isa::scalar, always, format, Format::f32, scalar::gemm_f32, scalar::prepare_f32};
}

// Best first for each weight format. With precision bf16 the first supported row of a format is
// taken (for prompts, the first that is made for them, if any), with f32 the first whose
// activations are f32.
constexpr GemmKernel kKernels[] = {
    {"amx_bf16_bf16", Isa::amx, has_amx_bf16, bf16, Format::bf16, run<amx::gemm_bf16>,
     prepare<amx::prepare_bf16>},
    amx_q8<q4_0>("amx_q4_0_q8"),
    amx_q8<q4_1>("amx_q4_1_q8"),
    amx_q8<q4_k>("amx_q4_k_q8"),
    amx_q8<q4_z>("amx_q4_z_q8"),
    amx_q8<fp4>("amx_fp4_q8"),
    amx_q8<fp4_16>("amx_fp4_16_q8"),
    amx_q8<q8_0>("amx_q8_0_q8"),
    amx_q8<q8_1>("amx_q8_1_q8"),
    amx_q8<q8_k>("amx_q8_k_q8"),
    amx_q8<q8_k16>("amx_q8_k16_q8"),
    amx_widened<q4_0>("amx_q4_0_bf16"),
    amx_widened<q4_1>("amx_q4_1_bf16"),
    amx_widened<q4_k>("amx_q4_k_bf16"),
    amx_widened<q4_z>("amx_q4_z_bf16"),
    amx_widened<fp4>("amx_fp4_bf16"),
    amx_widened<fp4_16>("amx_fp4_16_bf16"),
    amx_widened<q8_0>("amx_q8_0_bf16"),
    amx_widened<q8_1>("amx_q8_1_bf16"),
    amx_widened<q8_k>("amx_q8_k_bf16"),
    amx_widened<q8_k16>("amx_q8_k16_bf16"),
    avx512_q8<q4_0>("avx512_q4_0_q8"),
    avx512_q8<q4_1>("avx512_q4_1_q8"),
    avx512_q8<q4_k>("avx512_q4_k_q8"),
    avx512_q8<q4_z>("avx512_q4_z_q8"),
    avx512_q8<fp4>("avx512_fp4_q8"),
    avx512_q8<fp4_16>("avx512_fp4_16_q8"),
    avx512_q8<q8_0>("avx512_q8_0_q8"),
    avx512_q8<q8_1>("avx512_q8_1_q8"),
    avx512_q8<q8_k>("avx512_q8_k_q8"),
    avx512_q8<q8_k16>("avx512_q8_k16_q8"),
    avx2_q8<q4_0>("avx2_q4_0_q8"),
    avx2_q8<q4_1>("avx2_q4_1_q8"),
    avx2_q8<q4_k>("avx2_q4_k_q8"),
    avx2_q8<q4_z>("avx2_q4_z_q8"),
    avx2_q8<fp4>("avx2_fp4_q8"),
    avx2_q8<fp4_16>("avx2_fp4_16_q8"),
    avx2_q8<q8_0>("avx2_q8_0_q8"),
    avx2_q8<q8_1>("avx2_q8_1_q8"),
    avx2_q8<q8_k>("avx2_q8_k_q8"),
    avx2_q8<q8_k16>("avx2_q8_k16_q8"),
    scalar_q8("scalar_q4_0_q8", q4_0),
    scalar_q8("scalar_q4_1_q8", q4_1),
    scalar_q8("scalar_q4_k_q8", q4_k),
    scalar_q8("scalar_q4_z_q8", q4_z),
    scalar_q8("scalar_fp4_q8", fp4),
    scalar_q8("scalar_fp4_16_q8", fp4_16),
    scalar_q8("scalar_q8_0_q8", q8_0),
    scalar_q8("scalar_q8_1_q8", q8_1),
    scalar_q8("scalar_q8_k_q8", q8_k),
    scalar_q8("scalar_q8_k16_q8", q8_k16),
    {"amx_int8", Isa::amx, has_amx_int8, int8, Format::int8, run<amx::gemm_int8>,
     prepare<avx2::prepare_int8>},
    {"avx512_int8", Isa::avx512, has_avx512_vnni, int8, Format::int8, run<avx512::gemm_int8>,
     prepare<avx2::prepare_int8>},
    {"avx2_int8", Isa::avx2, has_avx2, int8, Format::int8, run<avx2::gemm_int8>,
     prepare<avx2::prepare_int8>},
    {"scalar_int8", Isa::scalar, always, int8, Format::int8, scalar::gemm_int8,
     scalar::prepare_int8},

    {"amx_fp8_bf16", Isa::amx, has_amx_and_avx512_bf16, fp8, Format::bf16, run<amx::gemm_fp8>,
     prepare<amx::prepare_bf16>},

    {"avx512_bf16_f32", Isa::avx512, has_avx512, bf16, Format::f32, run<avx512::gemm_f32<bf16>>,
     prepare<avx2::prepare_f32>},
    {"avx512_fp8_f32", Isa::avx512, has_avx512, fp8, Format::f32, run<avx512::gemm_f32<fp8>>,
     prepare<avx2::prepare_f32>},
    avx2_f32<bf16>("avx2_bf16_f32"),
    avx2_f32<q4_0>("avx2_q4_0_f32"),
    avx2_f32<q4_1>("avx2_q4_1_f32"),
    avx2_f32<q4_k>("avx2_q4_k_f32"),
    avx2_f32<q4_z>("avx2_q4_z_f32"),
    avx2_f32<fp4>("avx2_fp4_f32"),
    avx2_f32<fp4_16>("avx2_fp4_16_f32"),
    avx2_f32<q8_0>("avx2_q8_0_f32"),
    avx2_f32<q8_1>("avx2_q8_1_f32"),
    avx2_f32<q8_k>("avx2_q8_k_f32"),
    avx2_f32<q8_k16>("avx2_q8_k16_f32"),
    avx2_f32<int8>("avx2_int8_f32"),
    avx2_f32<fp8>("avx2_fp8_f32"),
    scalar_f32("scalar_bf16_f32", bf16),
    scalar_f32("scalar_q4_0_f32", q4_0),
    scalar_f32("scalar_q4_1_f32", q4_1),
    scalar_f32("scalar_q4_k_f32", q4_k),
    scalar_f32("scalar_q4_z_f32", q4_z),
    scalar_f32("scalar_fp4_f32", fp4),
    scalar_f32("scalar_fp4_16_f32", fp4_16),
    scalar_f32("scalar_q8_0_f32", q8_0),
    scalar_f32("scalar_q8_1_f32", q8_1),
    scalar_f32("scalar_q8_k_f32", q8_k),
    scalar_f32("scalar_q8_k16_f32", q8_k16),
    scalar_f32("scalar_int8_f32", int8),
    scalar_f32("scalar_fp8_f32", fp8),
};

const GemmKernel* find_kernel(WeightFormat format, ActivationPrecision precision,
                              const CpuFeatures& features, bool for_prompts) {
  const auto* kernel =
      std::find_if(std::begin(kKernels), std::end(kKernels), [&](const GemmKernel& candidate) {
        return candidate.format == format && candidate.for_prompts == for_prompts &&
               candidate.supported(features) &&
               (precision == ActivationPrecision::bf16 || candidate.activations == Format::f32);
      });
  return kernel == std::end(kKernels) ? nullptr : kernel;
}

const char* to_string(Format format) {
  switch (format) {
    case Format::f32:
      return "f32";
    case Format::bf16:
      return "bf16";
    case Format::q8:
      return "q8";
    case Format::int8:
      return "int8";
  }
  return "?";
}

}  // namespace

std::span<const GemmKernel> gemm_kernels() {
  return kKernels;
}

const GemmKernel& select_gemm(WeightFormat format, ActivationPrecision precision,
                              const CpuFeatures& features) {
  const GemmKernel* kernel = find_kernel(format, precision, features, false);
  TW_CHECK(kernel != nullptr);
  return *kernel;
}

const GemmKernel& select_prefill_gemm(WeightFormat format, ActivationPrecision precision,
                                      const CpuFeatures& features) {
  const GemmKernel* kernel = find_kernel(format, precision, features, true);
  return kernel != nullptr ? *kernel : select_gemm(format, precision, features);
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
      a.groups_per_row != expected.groups_per_row || a.group_stride != expected.group_stride ||
      (a.groups_per_row > 0 && a.groups == nullptr)) {
    return error(kInvalid,
                 "gemm {}: activations (row stride {}, {} groups) are not laid out by "
                 "layout_prepared_activations (row stride {}, {} groups, 64-byte aligned)",
                 kernel.name, a.row_stride, a.groups_per_row, expected.row_stride,
                 expected.groups_per_row);
  }
  return {};
}

}  // namespace tw::kernels
