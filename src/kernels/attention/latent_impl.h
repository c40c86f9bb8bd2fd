// Latent attention over Vec: where it finds keys and values (see attention_impl.h), and the writing
// of rows.
//
// A chunk of rows becomes, for each 16 tokens, a block of keys and one of values (kv_layout.h):
//   keys    the 32-bit words of two dimensions, transposed: [dimension / 2][16 tokens]
//   values  two tokens' dimensions interleaved: [dimension / 16][8]{[16 dimensions][2 tokens]}
// At 64 heads a group that is some percent of what the products cost.
#pragma once

#include "kernels/attention/attention_impl.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/rope/rope_impl.h"

namespace tw::kernels {

template <typename Vec, typename StoredElement>
struct Latents {
  using Arguments = LatentAttentionArguments;
  using Element = StoredElement;
  static constexpr int kMaxLatentDim = LatentLayout::kMaxLatentDim;
  static constexpr int kMaxRowDim = kMaxLatentDim + LatentLayout::kMaxRopeDim;
  using Tile = SoftmaxTile<Vec, kMaxRowDim, kMaxLatentDim>;
  static constexpr bool kReadsInPlace = false;
  static constexpr bool kGathers = true;
  static bool gathers(int) { return true; }

  static int row_dim(const Arguments& a) {
    return a.shape.layout.latent_dim + a.shape.layout.rope_dim;
  }
  static int value_dim(const Arguments& a) { return a.shape.layout.latent_dim; }
  static TileShape shape(const Arguments& a) { return {row_dim(a), value_dim(a), 0, 0.0f, 0}; }
  static int group(const Arguments& a) { return a.shape.heads_per_group(); }
  static float query_factor(const Arguments& a) { return a.shape.scale * kElementUnit<Element>; }
  static float output_factor(const Arguments&) { return kElementUnit<Element>; }

  static void locate(const Arguments& a, const AttentionItem&, int64_t block, int i,
                     Chunk<Element>& chunk) {
    chunk.keys[i] = reinterpret_cast<const Element*>(a.rows) + block * kTokenBlock * row_dim(a);
  }

  struct Scratch {
    alignas(64) bf16_t keys[kAttentionChunk * kMaxRowDim];
    alignas(64) bf16_t values[kAttentionChunk * kMaxLatentDim];
    alignas(64) bf16_t wide[kTokenBlock * kMaxRowDim];  // a block's rows, if they are not bf16
  };

  // The block's rows as bf16.
  static const bf16_t* widen(const bf16_t* rows, int, bf16_t*) { return rows; }
  static const bf16_t* widen(const f8_e4m3_t* rows, int count, bf16_t* wide) {
    for (int i = 0; i < count; i += 32) {
      const Vec low = Vec::load_narrow(rows + i);
      const Vec high = Vec::load_narrow(rows + i + 16);
      low.store_narrow(wide + i);
      high.store_narrow(wide + i + 16);
    }
    return wide;
  }

  static void gather(const Arguments& a, const Chunk<Element>& stored, Scratch& scratch,
                     Chunk<bf16_t>& chunk) {
    const int dim = row_dim(a);
    const int latent_dim = value_dim(a);
    chunk.begin = stored.begin;
    chunk.num_blocks = stored.num_blocks;
    for (int i = 0; i < stored.num_blocks; ++i) {
      bf16_t* keys = scratch.keys + i * kTokenBlock * dim;
      bf16_t* values = scratch.values + i * kTokenBlock * latent_dim;
      const bf16_t* rows = widen(stored.keys[i], kTokenBlock * dim, scratch.wide);
      for (int d = 0; d < dim; d += 32) {
        Vec::transpose(reinterpret_cast<const uint32_t*>(rows + d), dim / 2,
                       reinterpret_cast<uint32_t*>(keys + d * kTokenBlock), kTokenBlock);
      }
      for (int token = 0; token < kTokenBlock; token += 2) {
        const bf16_t* even = rows + token * dim;
        for (int d = 0; d < latent_dim; d += 16) {
          Vec::store_pairs(Vec::load_narrow(even + d), Vec::load_narrow(even + dim + d),
                           values + d * kTokenBlock + token * 16);
        }
      }
      chunk.keys[i] = keys;
      chunk.values[i] = values;
    }
  }
};

// rope_dim dimensions of a query or key, rotated into out.
template <typename Vec>
inline void rotate_latent(const LatentStoreArguments& a, const float* x, int64_t position,
                          float* out) {
  const int dim = a.layout.rope_dim;
  const int64_t angle = position * (dim / 2);
  alignas(64) float halves[LatentLayout::kMaxRopeDim];
  if (a.interleaved) {
    for (int i = 0; i < dim / 2; ++i) {
      halves[i] = x[2 * i];
      halves[dim / 2 + i] = x[2 * i + 1];
    }
    x = halves;
  }
  rotate_head<Vec>(x, a.rope.cos + angle, a.rope.sin + angle, dim, out);
}

template <typename Vec, typename Element>
void store_latents(const LatentStoreArguments& a, Range tokens) {
  const int latent_dim = a.layout.latent_dim;
  const int rope_dim = a.layout.rope_dim;
  const int64_t row_dim = latent_dim + rope_dim;
  alignas(64) float rotated[LatentLayout::kMaxRopeDim];
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const int64_t position = a.positions[token];
    for (int64_t head = 0; head < a.num_heads; ++head) {
      rotate_latent<Vec>(a, a.q_rope.data + token * a.q_rope.row_stride + head * a.rope_stride,
                         position, a.q.data + token * a.q.row_stride + head * row_dim + latent_dim);
    }
    const int64_t slot = a.kv_slots[token];
    if (slot < 0) continue;
    Element* row = reinterpret_cast<Element*>(a.rows) + slot * row_dim;
    round_head<Vec>(a.latent.data + token * a.latent.row_stride, latent_dim, 1.0f, row);
    rotate_latent<Vec>(a, a.k_rope.data + token * a.k_rope.row_stride, position, rotated);
    round_head<Vec>(rotated, rope_dim, 1.0f, row + latent_dim);
  }
}

}  // namespace tw::kernels
