#include "kernels/embedding/embedding.h"

namespace tw::kernels {
namespace {

constexpr KernelRow<EmbeddingKernels> kTable[] = {
    {"embedding_avx512", Isa::avx512, supports_avx512, &avx512::kEmbeddingKernels},
    {"embedding_avx2", Isa::avx2, supports_avx2, &avx2::kEmbeddingKernels},
    {"embedding_scalar", Isa::scalar, supports_scalar, &scalar::kEmbeddingKernels},
};

}  // namespace

std::span<const KernelRow<EmbeddingKernels>> embedding_kernels() {
  return kTable;
}

const EmbeddingKernels& select_embedding(const CpuFeatures& features) {
  return *select_row<EmbeddingKernels>(kTable, features).functions;
}

}  // namespace tw::kernels
