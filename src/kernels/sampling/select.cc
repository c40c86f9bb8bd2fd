#include "kernels/sampling/logits.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<LogitsKernels> kTable[] = {
    {"logits_avx512", Isa::avx512, supports_avx512, &avx512::kLogitsKernels},
    {"logits_avx2", Isa::avx2, supports_avx2, &avx2::kLogitsKernels},
    {"logits_scalar", Isa::scalar, supports_scalar, &scalar::kLogitsKernels},
};

}  // namespace

std::span<const KernelRow<LogitsKernels>> logits_kernels() {
  return kTable;
}

const LogitsKernels& select_logits(const CpuFeatures& features) {
  return *select_row<LogitsKernels>(kTable, features).functions;
}

}  // namespace tw::kernels
