#include "kernels/attention/attention.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<AttentionKernels> kBf16Table[] = {
    {"attention_avx512", Isa::avx512, supports_avx512, &avx512::kAttentionKernels},
    {"attention_avx2", Isa::avx2, supports_avx2, &avx2::kAttentionKernels},
    {"attention_scalar", Isa::scalar, supports_scalar, &scalar::kAttentionKernels},
};
constexpr KernelRow<AttentionKernels> kFp8Table[] = {
    {"attention_fp8_avx512", Isa::avx512, supports_avx512, &avx512::kAttentionFp8Kernels},
    {"attention_fp8_avx2", Isa::avx2, supports_avx2, &avx2::kAttentionFp8Kernels},
    {"attention_fp8_scalar", Isa::scalar, supports_scalar, &scalar::kAttentionFp8Kernels},
};

}  // namespace

std::span<const KernelRow<AttentionKernels>> attention_kernels(KvType type) {
  if (type == KvType::fp8_e4m3) return kFp8Table;
  return kBf16Table;
}

const AttentionKernels& select_attention(const CpuFeatures& features, KvType type) {
  return *select_row<AttentionKernels>(attention_kernels(type), features).functions;
}

}  // namespace tw::kernels
