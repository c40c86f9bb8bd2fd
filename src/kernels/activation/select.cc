#include "kernels/activation/activation.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<ActivationKernels> kTable[] = {
    {"activation_avx512", Isa::avx512, supports_avx512, &avx512::kActivationKernels},
    {"activation_avx2", Isa::avx2, supports_avx2, &avx2::kActivationKernels},
    {"activation_scalar", Isa::scalar, supports_scalar, &scalar::kActivationKernels},
};

}  // namespace

const char* to_string(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::sigmoid:
      return "sigmoid";
  }
  return "?";
}

std::span<const KernelRow<ActivationKernels>> activation_kernels() {
  return kTable;
}

const ActivationKernels& select_activation(const CpuFeatures& features) {
  return *select_row<ActivationKernels>(kTable, features).functions;
}

}  // namespace tw::kernels
