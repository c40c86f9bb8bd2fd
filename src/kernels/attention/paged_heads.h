// Where grouped-query attention finds keys and values (see attention_impl.h): the pages of
// kv_layout.h, of bf16 or e4m3.
//
// e4m3 is widened to bf16 once per chunk where several tiles pass over it; where there is one tile
// (decode), each element is used once and is widened on its way into a register. Both see the same
// numbers.
#pragma once

#include "kernels/attention/attention_impl.h"

namespace tw::kernels {

template <typename Vec, typename StoredElement>
struct PagedHeads {
  using Arguments = AttentionArguments;
  using Element = StoredElement;
  using Tile = SoftmaxTile<Vec, KvLayout::kMaxHeadDim, KvLayout::kMaxHeadDim>;
  static constexpr bool kReadsInPlace = true;
  static constexpr bool kGathers = sizeof(Element) < sizeof(bf16_t);
  static bool gathers(int num_rows) { return kGathers && num_rows > Tile::kMaxRows; }

  static int value_dim(const Arguments& a) { return a.shape.layout.head_dim; }
  static TileShape shape(const Arguments& a) {
    const int head_dim = a.shape.layout.head_dim;
    return {head_dim, (head_dim + 15) / 16 * 16, a.shape.sliding_window, a.shape.soft_cap,
            a.shape.attention_chunk};
  }
  static float query_factor(const Arguments& a) {
    const float unit = kElementUnit<Element> * a.key_scale;
    return (a.shape.soft_cap > 0.0f ? a.shape.scale / a.shape.soft_cap : a.shape.scale) * unit;
  }
  static float output_factor(const Arguments& a) { return kElementUnit<Element> * a.value_scale; }
  static int group(const Arguments& a) { return a.shape.num_heads / a.shape.layout.num_kv_heads; }

  // `block` counts the 16-token blocks of a head's pages.
  static void locate(const Arguments& a, const AttentionItem& item, int64_t block, int i,
                     Chunk<Element>& chunk) {
    const KvLayout& layout = a.shape.layout;
    const int64_t index =
        item.kv_head * layout.num_pages * (layout.page_size / kTokenBlock) + block;
    const TileShape tile = shape(a);
    chunk.keys[i] = reinterpret_cast<const Element*>(a.keys) + index * tile.key_dim * kTokenBlock;
    chunk.values[i] =
        reinterpret_cast<const Element*>(a.values) + index * tile.value_dim * kTokenBlock;
  }

  struct Scratch {
    alignas(64) bf16_t keys[kAttentionChunk * (kGathers ? KvLayout::kMaxHeadDim : 1)];
    alignas(64) bf16_t values[kAttentionChunk * (kGathers ? KvLayout::kMaxHeadDim : 1)];
  };

  static void widen(const Element* from, int count, bf16_t* to) {
    for (int i = 0; i < count; i += 32) {
      Vec::store_pairs(Vec::load_even(from + i), Vec::load_odd(from + i), to + i);
    }
  }

  static void gather(const Arguments& a, const Chunk<Element>& stored, Scratch& scratch,
                     Chunk<bf16_t>& chunk) {
    const TileShape tile = shape(a);
    chunk.begin = stored.begin;
    chunk.num_blocks = stored.num_blocks;
    for (int i = 0; i < stored.num_blocks; ++i) {
      bf16_t* keys = scratch.keys + i * tile.key_dim * kTokenBlock;
      bf16_t* values = scratch.values + i * tile.value_dim * kTokenBlock;
      widen(stored.keys[i], tile.key_dim * kTokenBlock, keys);
      widen(stored.values[i], tile.value_dim * kTokenBlock, values);
      chunk.keys[i] = keys;
      chunk.values[i] = values;
    }
  }
};

}  // namespace tw::kernels
