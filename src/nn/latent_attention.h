// Attention in the latent space over a layer's cache of rows, recorded into a plan: what lies
// between the absorbed queries and the absorbed values of MLA.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/buffer.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/rope/rope_table.h"
#include "nn/plan.h"

namespace tw {

// The memory of one layer's rows; touched when first written.
class LatentCache {
 public:
  LatentCache() = default;
  // Fails with unsupported or invalid_argument for a layout that no kernel reads, and with
  // resource_exhausted.
  static Expected<LatentCache> allocate(const kernels::LatentLayout& layout);

  const kernels::LatentLayout& layout() const { return layout_; }
  std::byte* rows() const { return buffer_.data(); }
  void copy_page(int64_t from, int64_t to);

 private:
  kernels::LatentLayout layout_;
  Buffer buffer_;
};

// One layer's attention. The arrays and the cache must outlive the plan.
struct LatentAttentionLayer {
  kernels::LatentAttentionShape shape;  // its layout is the cache's
  const LatentCache& cache;
  std::shared_ptr<const kernels::RopeTable> rope;
  bool interleaved_rope = false;
  int32_t nope_dim = 0;
  std::span<const float> latent_norm;  // [latent_dim]
  float epsilon = 0;
};

struct LatentAttentionValues {
  ValueId queries;   // [tokens, num_heads * (nope_dim + rope_dim)], of the projection
  ValueId absorbed;  // [tokens, num_heads * (latent_dim + rope_dim)]: W_UK^T q_nope, and room
  ValueId latents;   // [tokens, latent_dim + rope_dim], of the projection; normalized in place
  ValueId output;    // [tokens, num_heads * latent_dim]
};

}  // namespace tw
