#include "kernels/moe/moe_kernels.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<MoeKernels> kTable[] = {
    {"moe_avx512", Isa::avx512, supports_avx512, &avx512::kMoeKernels},
    {"moe_avx2", Isa::avx2, supports_avx2, &avx2::kMoeKernels},
    {"moe_scalar", Isa::scalar, supports_scalar, &scalar::kMoeKernels},
};

}  // namespace

std::span<const KernelRow<MoeKernels>> moe_kernels() {
  return kTable;
}

const MoeKernels& select_moe(const CpuFeatures& features) {
  return *select_row<MoeKernels>(kTable, features).functions;
}

Status RouterConfig::validate() const {
  constexpr auto kCorrupt = ErrorCode::corrupt_data;
  if (num_experts < 1 || num_experts > kMaxExperts) {
    return error(ErrorCode::unsupported, "{} experts, expected 1 to {}", num_experts, kMaxExperts);
  }
  if (top_k < 1 || top_k > num_experts) {
    return error(kCorrupt, "{} experts per token, expected 1 to the {} experts that there are",
                 top_k, num_experts);
  }
  if (top_k > kMaxTopK) {
    return error(ErrorCode::unsupported, "{} experts per token, expected at most {}", top_k,
                 kMaxTopK);
  }
  if (num_groups < 1 || num_experts % num_groups != 0) {
    return error(kCorrupt, "{} groups of experts, expected a divisor of {} experts", num_groups,
                 num_experts);
  }
  if (num_groups == 1) return {};
  if (top_groups < 1 || top_groups > num_groups || top_groups > kMaxTopK) {
    return error(kCorrupt, "the best {} groups of experts, expected 1 to {}", top_groups,
                 num_groups < kMaxTopK ? num_groups : kMaxTopK);
  }
  if (top_groups * (num_experts / num_groups) < top_k) {
    return error(kCorrupt, "{} experts per token out of {} groups of {}: expected at most {}",
                 top_k, top_groups, num_experts / num_groups,
                 top_groups * (num_experts / num_groups));
  }
  return {};
}

}  // namespace tw::kernels
