#include "kernels/attention/latent_attention.h"

namespace tw::kernels {
namespace {

// As many rows as the plan may still split over threads (plan.cc).
constexpr int32_t kMaxHeadsPerGroup = 64;

constexpr KernelRow<LatentAttentionKernels> kBf16Table[] = {
    {"latent_attention_avx512", Isa::avx512, supports_avx512, &avx512::kLatentAttentionKernels},
    {"latent_attention_avx2", Isa::avx2, supports_avx2, &avx2::kLatentAttentionKernels},
    {"latent_attention_scalar", Isa::scalar, supports_scalar, &scalar::kLatentAttentionKernels},
};
constexpr KernelRow<LatentAttentionKernels> kFp8Table[] = {
    {"latent_attention_fp8_avx512", Isa::avx512, supports_avx512,
     &avx512::kLatentAttentionFp8Kernels},
    {"latent_attention_fp8_avx2", Isa::avx2, supports_avx2, &avx2::kLatentAttentionFp8Kernels},
    {"latent_attention_fp8_scalar", Isa::scalar, supports_scalar,
     &scalar::kLatentAttentionFp8Kernels},
};

Status check_dim(const char* name, int32_t dim, int32_t largest) {
  if (dim > 0 && dim % 32 == 0 && dim <= largest) return {};
  return error(ErrorCode::unsupported,
               "latent attention: {} is {}; supported are multiples of 32 up to {}", name, dim,
               largest);
}

}  // namespace

Status LatentLayout::validate() const {
  if (Status valid = check_dim("kv_lora_rank", latent_dim, kMaxLatentDim); !valid) return valid;
  if (Status valid = check_dim("qk_rope_head_dim", rope_dim, kMaxRopeDim); !valid) return valid;
  if (page_size <= 0 || page_size % kTokenBlock != 0) {
    return error(ErrorCode::invalid_argument,
                 "KV cache: page_size is {}; it must be a positive multiple of {}", page_size,
                 kTokenBlock);
  }
  if (num_pages <= 0) {
    return error(ErrorCode::invalid_argument, "KV cache: {} pages; at least 1 is needed",
                 num_pages);
  }
  return {};
}

Status LatentAttentionShape::validate() const {
  if (num_heads <= 0) {
    return error(ErrorCode::invalid_argument, "latent attention: {} heads; at least 1 is needed",
                 num_heads);
  }
  return layout.validate();
}

int32_t LatentAttentionShape::heads_per_group() const {
  int32_t heads = num_heads < kMaxHeadsPerGroup ? num_heads : kMaxHeadsPerGroup;
  while (num_heads % heads != 0) --heads;
  return heads;
}

std::span<const KernelRow<LatentAttentionKernels>> latent_attention_kernels(KvType type) {
  if (type == KvType::fp8_e4m3) return kFp8Table;
  return kBf16Table;
}

const LatentAttentionKernels& select_latent_attention(const CpuFeatures& features, KvType type) {
  return *select_row<LatentAttentionKernels>(latent_attention_kernels(type), features).functions;
}

}  // namespace tw::kernels
