// Attention in the latent space (multi-head latent attention, DeepSeek-V2, 2024): causal attention
// of a batch's new tokens over a paged cache that keeps one row per token for all heads.
//
//   row(j) = [latent(j), rotated key(j)]                [latent_dim + rope_dim]
//   out[t, h] = sum_j softmax_j(scale * q[t, h] . row(j)) latent(j)       [latent_dim]
//
// A head's keys are W_UK latent and its values W_UV latent. Both matrices are absorbed: q holds
// W_UK^T q_nope beside the rotated part of the query, and W_UV is applied to `out`. So a token
// costs latent_dim + rope_dim numbers (576 where 128 heads would have 40960), one copy, from which
// both keys and values are read.
//
// Rows of the cache lie as they are, bf16 or e4m3: [num_pages][page_size][latent_dim + rope_dim].
// An item copies a chunk of them into the blocks of kv_layout.h, once for all its rows (many, as
// all heads share a chunk), and from there on everything is as in attention.h: the same chunks at
// fixed places, partial softmaxes, order of operations and merging, so the same independence of
// batch, chunking and threads. The plan divides the heads into groups, as if they had KV heads of
// their own; these read the same rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/attention/attention.h"
#include "kernels/kernel_table.h"
#include "kernels/rope/rope.h"

namespace tw::kernels {

struct LatentLayout {
  int32_t latent_dim = 0;  // kv_lora_rank; a multiple of 32, at most kMaxLatentDim
  int32_t rope_dim = 0;    // a multiple of 32, at most kMaxRopeDim
  int32_t page_size = 0;   // tokens; a multiple of kTokenBlock
  int64_t num_pages = 0;
  KvType type = KvType::bf16;

  static constexpr int32_t kMaxLatentDim = 512;
  static constexpr int32_t kMaxRopeDim = 64;

  bool operator==(const LatentLayout&) const = default;

  // Fails with invalid_argument or unsupported, naming the number that does not fit.
  Status validate() const;

  int32_t row_dim() const { return latent_dim + rope_dim; }
  int64_t bytes_per_token() const { return row_dim() * element_size(type); }
};

struct LatentAttentionShape {
  int32_t num_heads = 0;
  LatentLayout layout;
  float scale = 0.0f;

  bool operator==(const LatentAttentionShape&) const = default;

  Status validate() const;
  // Heads that an item takes together: the more, the less copying of rows costs beside the products
  // with them; up to where long contexts of single tokens can still be split over threads.
  int32_t heads_per_group() const;
  AttentionWork work() const {
    return {num_heads, num_heads / heads_per_group(), layout.latent_dim, 0};
  }
};

// What lies between the projections and attention: rotates the queries' last rope_dim dimensions
// into q, and writes rows of the cache.
struct LatentStoreArguments {
  RopeView rope;             // of rope_dim dimensions
  bool interleaved = false;  // the given dimensions pair as (2i, 2i + 1), not as halves
  LatentLayout layout;
  int32_t num_heads = 0;
  // [num_tokens, num_heads * rope_stride]: the part to be rotated of each head's query begins at
  // q_rope.data, the next head's rope_stride floats on.
  Matrix<const float> q_rope;
  int64_t rope_stride = 0;
  Matrix<float> q;             // [num_tokens, num_heads * row_dim]; its latent parts stay untouched
  Matrix<const float> latent;  // [num_tokens, latent_dim], normalized
  Matrix<const float> k_rope;  // [num_tokens, rope_dim], not rotated
  const int32_t* positions = nullptr;
  const int32_t* kv_slots = nullptr;  // [num_tokens] page * page_size + offset; -1 stores nothing
  std::byte* rows = nullptr;          // a layer's pages
};

struct LatentAttentionArguments {
  LatentAttentionShape shape;
  AttentionBatch batch;
  const AttentionPlan* plan = nullptr;  // of shape.work()
  Matrix<const float> q;                // [num_tokens, num_heads * row_dim]
  Matrix<float> out;                    // [num_tokens, num_heads * latent_dim]; not q
  const std::byte* rows = nullptr;      // the layer's pages, 64-byte aligned
  float* partials = nullptr;
  const float* sinks = nullptr;  // none: the joining of partials is shared with attention.h
};

struct LatentAttentionKernels {
  void (*store)(const LatentStoreArguments& arguments, Range tokens);
  // As AttentionKernels.
  void (*attend)(const LatentAttentionArguments& arguments, Range items);
  void (*merge)(const LatentAttentionArguments& arguments, Range tokens);
};

std::span<const KernelRow<LatentAttentionKernels>> latent_attention_kernels(KvType type);
const LatentAttentionKernels& select_latent_attention(const CpuFeatures& features, KvType type);

namespace scalar {
extern const LatentAttentionKernels kLatentAttentionKernels;
extern const LatentAttentionKernels kLatentAttentionFp8Kernels;
}  // namespace scalar
namespace avx2 {
extern const LatentAttentionKernels kLatentAttentionKernels;
extern const LatentAttentionKernels kLatentAttentionFp8Kernels;
}  // namespace avx2
namespace avx512 {
extern const LatentAttentionKernels kLatentAttentionKernels;
extern const LatentAttentionKernels kLatentAttentionFp8Kernels;
}  // namespace avx512

}  // namespace tw::kernels
