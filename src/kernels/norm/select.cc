#include "kernels/norm/norm.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<NormKernels> kTable[] = {
    {"norm_avx512", Isa::avx512, supports_avx512, &avx512::kNormKernels},
    {"norm_avx2", Isa::avx2, supports_avx2, &avx2::kNormKernels},
    {"norm_scalar", Isa::scalar, supports_scalar, &scalar::kNormKernels},
};

}  // namespace

std::span<const KernelRow<NormKernels>> norm_kernels() {
  return kTable;
}

const NormKernels& select_norm(const CpuFeatures& features) {
  return *select_row<NormKernels>(kTable, features).functions;
}

}  // namespace tw::kernels
