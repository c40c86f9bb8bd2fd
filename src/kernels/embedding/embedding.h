// Token embeddings: rows of a table, as fp32.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/gemm/packed_weight.h"
#include "kernels/kernel_table.h"

namespace tw::kernels {

// out[i] = scale * table[token_ids[i]], for i in a range. Ids lie within the table (the engine has
// checked the request's).
struct EmbeddingArguments {
  const int32_t* token_ids = nullptr;  // [num_tokens]
  float scale = 1.0f;                  // sqrt(hidden_size) for Gemma
  Matrix<float> out;                   // [num_tokens, hidden_size]
};

// A plain table [vocab_size, hidden_size] of f32, f16 or bf16.
struct DenseTable {
  DType type = DType::bf16;
  const void* data = nullptr;
  int64_t row_stride = 0;  // elements
};

struct EmbeddingKernels {
  void (*dense)(const EmbeddingArguments& arguments, const DenseTable& table, Range tokens);
  // A table packed for GEMM, as a head tied to the embeddings is. Channel n is row n.
  void (*packed)(const EmbeddingArguments& arguments, const PackedWeight& table, Range tokens);
};

std::span<const KernelRow<EmbeddingKernels>> embedding_kernels();
const EmbeddingKernels& select_embedding(const CpuFeatures& features);

namespace scalar {
extern const EmbeddingKernels kEmbeddingKernels;
}
namespace avx2 {
extern const EmbeddingKernels kEmbeddingKernels;
}
namespace avx512 {
extern const EmbeddingKernels kEmbeddingKernels;
}

}  // namespace tw::kernels
