#include "kernels/delta_net/delta_net.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<DeltaNetKernels> kTable[] = {
    {"delta_net_avx512", Isa::avx512, supports_avx512, &avx512::kDeltaNetKernels},
    {"delta_net_avx2", Isa::avx2, supports_avx2, &avx2::kDeltaNetKernels},
    {"delta_net_scalar", Isa::scalar, supports_scalar, &scalar::kDeltaNetKernels},
};

}  // namespace

Status DeltaRuleShape::validate() const {
  if (num_key_heads <= 0 || num_heads <= 0 || num_heads % num_key_heads != 0) {
    return error(
        ErrorCode::unsupported,
        "linear attention: {} value heads over {} key heads; a positive multiple is needed",
        num_heads, num_key_heads);
  }
  if (key_dim <= 0 || key_dim % 2 != 0) {
    return error(ErrorCode::unsupported,
                 "linear attention: keys of {} dimensions; an even number is needed", key_dim);
  }
  if (value_dim <= 0 || value_dim % 16 != 0) {
    return error(ErrorCode::unsupported,
                 "linear attention: values of {} dimensions; a multiple of 16 is needed",
                 value_dim);
  }
  return {};
}

std::span<const KernelRow<DeltaNetKernels>> delta_net_kernels() {
  return kTable;
}

const DeltaNetKernels& select_delta_net(const CpuFeatures& features) {
  return *select_row<DeltaNetKernels>(kTable, features).functions;
}

}  // namespace tw::kernels
