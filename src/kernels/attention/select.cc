#include "kernels/attention/attention.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<AttentionKernels> kTable[] = {
    {"attention_avx512", Isa::avx512, supports_avx512, &avx512::kAttentionKernels},
    {"attention_avx2", Isa::avx2, supports_avx2, &avx2::kAttentionKernels},
    {"attention_scalar", Isa::scalar, supports_scalar, &scalar::kAttentionKernels},
};

}  // namespace

std::span<const KernelRow<AttentionKernels>> attention_kernels() {
  return kTable;
}

const AttentionKernels& select_attention(const CpuFeatures& features) {
  return *select_row<AttentionKernels>(kTable, features).functions;
}

}  // namespace tw::kernels
