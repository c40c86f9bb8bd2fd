#include "kernels/rope/rope.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<RopeKernels> kTable[] = {
    {"rope_avx512", Isa::avx512, supports_avx512, &avx512::kRopeKernels},
    {"rope_avx2", Isa::avx2, supports_avx2, &avx2::kRopeKernels},
    {"rope_scalar", Isa::scalar, supports_scalar, &scalar::kRopeKernels},
};

}  // namespace

std::span<const KernelRow<RopeKernels>> rope_kernels() {
  return kTable;
}

const RopeKernels& select_rope(const CpuFeatures& features) {
  return *select_row<RopeKernels>(kTable, features).functions;
}

}  // namespace tw::kernels
