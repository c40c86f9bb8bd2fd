// The driver of attention over Vec (math/vector_scalar.h): items of the plan, their rows in tiles,
// passes over chunks, and the joining of partial softmaxes. The problem, the order of operations
// and the division of work are described in attention.h, a tile's arithmetic in softmax_tile.h.
//
// Source is where keys and values come from (paged_heads.h, latent_impl.h):
//
//   Arguments                    with q, out, batch, plan, sinks and partials
//   Element                      of the cache
//   Tile                         the SoftmaxTile with room for its dimensions
//   shape(a), value_dim(a)       of the tiles; value_dim without its padding
//   group(a)                     query heads that an item has of each token
//   query_factor(a), output_factor(a)   of the queries before, of the weighted values at the end
//   locate(a, item, block, i, chunk)    notes where the i-th block of a chunk lies
//   kReadsInPlace                whether tiles can read blocks where they lie ...
//   kGathers, gathers(rows)      ... or copies of them, and which, for an item of so many rows
//   Scratch, gather(a, stored, scratch, chunk)  makes the copies, as bf16
#pragma once

#include "kernels/attention/partial.h"
#include "kernels/attention/softmax_tile.h"

namespace tw::kernels {

template <typename Vec, typename Source>
struct Attention {
  using Arguments = typename Source::Arguments;
  using Element = typename Source::Element;
  using Tile = typename Source::Tile;

  // Chunks whose keys and values stay in L2 (1 MB) while the tiles of an item pass over them.
  static constexpr int kMaxChunksPerPass = 8;
  template <typename ChunkElement>
  struct Pass {
    int first_chunk;
    int num_chunks;
    bool is_last;  // of the item
    Chunk<ChunkElement> chunks[kMaxChunksPerPass];
  };

  // The softmax of each row of an item so far; its weighted values are in `out`.
  struct State {
    float maximum[kMaxAttentionRows];
    float sum[kMaxAttentionRows];
  };

  static int smaller(int a, int b) { return a < b ? a : b; }

  // Rows of an item are numbered token by token, head by head.
  struct Row {
    int64_t token;
    int64_t head;
  };
  static Row row_of(const AttentionItem& item, int group, int row) {
    return {item.first_token + row / group, int64_t{item.kv_head} * group + row % group};
  }

  static float* output(const Arguments& a, const Row& row) {
    return a.out.data + row.token * a.out.row_stride + row.head * Source::value_dim(a);
  }

  // The part of a chunk's blocks that lies before `end_position`.
  static void locate(const Arguments& a, const AttentionItem& item, int64_t chunk_index,
                     int64_t end_position, Chunk<Element>& chunk) {
    const int32_t* pages = a.batch.page_tables.data() + a.batch.page_table_starts.data()[item.seq];
    const int64_t blocks_per_page = a.shape.layout.page_size / kTokenBlock;
    chunk.begin = chunk_index * kAttentionChunk;
    chunk.num_blocks = 0;
    for (int i = 0; i < kBlocksPerChunk; ++i) {
      const int64_t position = chunk.begin + i * kTokenBlock;
      if (position >= end_position) break;
      const int64_t block = position / kTokenBlock;
      const int64_t page = pages[block / blocks_per_page];
      Source::locate(a, item, page * blocks_per_page + block % blocks_per_page, i, chunk);
      chunk.num_blocks = i + 1;
    }
  }

  // Chooses what is prefetched. When a pass has one tile, keys and values come from memory, each
  // once: the lines of the block that is used four blocks later are asked for, one for each line
  // used. (Pages come in any order, which the processor's prefetchers can't guess.) With more tiles
  // they come from L2, and a block stands for itself, which costs next to nothing.
  template <typename ChunkElement>
  static void look_ahead(bool is_single_tile, Pass<ChunkElement>& pass) {
    constexpr int kDistance = 4;
    for (int c = 0; c < pass.num_chunks; ++c) {
      Chunk<ChunkElement>& chunk = pass.chunks[c];
      const int n = chunk.num_blocks;
      const Chunk<ChunkElement>* next = c + 1 < pass.num_chunks ? &pass.chunks[c + 1] : nullptr;
      for (int i = 0; i < n; ++i) {
        const int ahead = is_single_tile ? i + kDistance : i;
        const int beyond = ahead - n;
        if (beyond < 0) {
          chunk.after_key[i] = chunk.keys[ahead];
          chunk.after_value[i] = chunk.values[ahead];
        } else {
          chunk.after_key[i] = chunk.values[beyond < n ? beyond : i];
          chunk.after_value[i] =
              next != nullptr && beyond < next->num_blocks ? next->keys[beyond] : chunk.values[i];
        }
      }
    }
  }

  template <int R>
  static void load_queries(const Arguments& a, const AttentionItem& item, int first_row,
                           Tile& tile) {
    const int key_dim = Source::shape(a).key_dim;
    const int group = Source::group(a);
    const Vec factor = Vec::broadcast(Source::query_factor(a));
    for (int r = 0; r < R; ++r) {
      const Row row = row_of(item, group, first_row + r);
      tile.position[r] = a.batch.positions.data()[row.token];
      const float* query = a.q.data + row.token * a.q.row_stride + row.head * key_dim;
      float* scaled = tile.queries + r * Tile::kQueryStride;
      for (int d = 0; d < key_dim; d += 16) {
        (Vec::load_first(query + d, key_dim - d) * factor).store(scaled + d);
      }
    }
  }

  // Joins a later part of the context (second) to an earlier one. A part without any position has
  // sum 0 and leaves the other as it is, bit for bit.
  static void join(float& maximum, float& sum, float* acc, float second_maximum, float second_sum,
                   const float* second_acc, int value_dim) {
    if (second_sum == 0.0f) return;
    if (sum == 0.0f) {
      maximum = second_maximum;
      sum = second_sum;
      for (int d = 0; d < value_dim; d += 16) {
        Vec::load(second_acc + d).store_first(acc + d, value_dim - d);
      }
      return;
    }
    const float joint = maximum > second_maximum ? maximum : second_maximum;
    const Vec weight = vector_exp(Vec::broadcast(maximum - joint));
    const Vec second_weight = vector_exp(Vec::broadcast(second_maximum - joint));
    maximum = joint;
    const Vec sums = fma(Vec::broadcast(sum), weight, Vec::broadcast(second_sum) * second_weight);
    sums.store_first(&sum, 1);
    for (int d = 0; d < value_dim; d += 16) {
      const Vec scaled = Vec::load(second_acc + d) * second_weight;
      fma(Vec::load_first(acc + d, value_dim - d), weight, scaled)
          .store_first(acc + d, value_dim - d);
    }
  }

  // Divides by the sum, in which a sink takes part.
  static void finish(const Arguments& a, int64_t head, float maximum, float sum, float* acc) {
    const int value_dim = Source::value_dim(a);
    Vec factor = Vec::broadcast(1.0f / sum);
    if (a.sinks != nullptr) {
      const float sink = a.sinks[head];
      const float joint = maximum > sink ? maximum : sink;
      const Vec weight = vector_exp(Vec::broadcast(maximum - joint));
      const Vec sink_weight = vector_exp(Vec::broadcast(sink - joint));
      factor = weight / fma(Vec::broadcast(sum), weight, sink_weight);
    }
    factor = factor * Vec::broadcast(Source::output_factor(a));
    for (int d = 0; d < value_dim; d += 16) {
      (Vec::load_first(acc + d, value_dim - d) * factor).store_first(acc + d, value_dim - d);
    }
  }

  // A pass over some chunks, R rows at a time: a tile's queries and results stay in L1 meanwhile.
  template <int R, typename ChunkElement>
  static int attend_rows(const Arguments& a, const AttentionItem& item,
                         const Pass<ChunkElement>& pass, int first_row, State& state, Tile& tile) {
    const TileShape shape = Source::shape(a);
    const int group = Source::group(a);
    const int num_rows = item.num_tokens * group;
    load_queries<R>(a, item, first_row, tile);
    for (int c = 0; c < pass.num_chunks; ++c) {
      tile.template attend<R>(shape, pass.chunks[c]);
      for (int r = 0; r < R; ++r) {
        const int row = first_row + r;
        const float* acc = tile.acc + r * shape.value_dim;
        if (item.first_partial >= 0) {
          const int64_t index =
              item.first_partial + (pass.first_chunk - item.first_chunk + c) * num_rows + row;
          float* partial = a.partials + index * partial_stride(shape.value_dim);
          for (int d = 0; d < shape.value_dim; d += 16) Vec::load(acc + d).store(partial + d);
          partial[shape.value_dim] = tile.maximum[r];
          partial[shape.value_dim + 1] = tile.sum[r];
        } else {
          const Row at = row_of(item, group, row);
          float* out = output(a, at);
          join(state.maximum[row], state.sum[row], out, tile.maximum[r], tile.sum[r], acc,
               Source::value_dim(a));
          if (pass.is_last && c + 1 == pass.num_chunks) {
            finish(a, at.head, state.maximum[row], state.sum[row], out);
          }
        }
      }
    }
    return R;
  }

  // Takes as many rows as the largest tile that fits; returns how many.
  template <typename ChunkElement>
  static int attend_some_rows(const Arguments& a, const AttentionItem& item,
                              const Pass<ChunkElement>& pass, int first_row, int num_rows,
                              State& state, Tile& tile) {
    if constexpr (Tile::kMaxRows >= 12) {
      if (num_rows >= 12) return attend_rows<12>(a, item, pass, first_row, state, tile);
      if (num_rows >= 8) return attend_rows<8>(a, item, pass, first_row, state, tile);
    }
    if (num_rows >= 6) return attend_rows<6>(a, item, pass, first_row, state, tile);
    switch (num_rows) {
      case 5:
        return attend_rows<5>(a, item, pass, first_row, state, tile);
      case 4:
        return attend_rows<4>(a, item, pass, first_row, state, tile);
      case 3:
        return attend_rows<3>(a, item, pass, first_row, state, tile);
      case 2:
        return attend_rows<2>(a, item, pass, first_row, state, tile);
      default:
        return attend_rows<1>(a, item, pass, first_row, state, tile);
    }
  }

  template <typename ChunkElement>
  static void attend_pass(const Arguments& a, const AttentionItem& item, Pass<ChunkElement>& pass,
                          int num_rows, bool from_memory, State& state, Tile& tile) {
    pass.is_last = pass.first_chunk + pass.num_chunks == item.last_chunk;
    look_ahead(from_memory, pass);
    for (int row = 0; row < num_rows;) {
      row += attend_some_rows(a, item, pass, row, num_rows - row, state, tile);
    }
  }

  static void attend_item(const Arguments& a, const AttentionItem& item, Tile& tile,
                          typename Source::Scratch& scratch) {
    const int num_rows = item.num_tokens * Source::group(a);
    const int64_t end_position =
        int64_t{a.batch.positions.data()[item.first_token + item.num_tokens - 1]} + 1;
    State state;
    for (int row = 0; row < num_rows; ++row) {
      state.maximum[row] = kNoScore;
      state.sum[row] = 0.0f;
    }
    if (Source::gathers(num_rows)) {
      // One chunk at a time: copies of more would not stay in L2.
      if constexpr (Source::kGathers) {
        Chunk<Element> stored;
        Pass<bf16_t> pass;
        pass.num_chunks = 1;
        for (int chunk = item.first_chunk; chunk < item.last_chunk; ++chunk) {
          locate(a, item, chunk, end_position, stored);
          Source::gather(a, stored, scratch, pass.chunks[0]);
          pass.first_chunk = chunk;
          attend_pass(a, item, pass, num_rows, false, state, tile);
        }
      }
      return;
    }
    if constexpr (Source::kReadsInPlace) {
      const int chunks_per_pass =
          Source::shape(a).key_dim <= 128 ? kMaxChunksPerPass : kMaxChunksPerPass / 2;
      Pass<Element> pass;
      for (int chunk = item.first_chunk; chunk < item.last_chunk; chunk += pass.num_chunks) {
        pass.first_chunk = chunk;
        pass.num_chunks = smaller(item.last_chunk - chunk, chunks_per_pass);
        for (int c = 0; c < pass.num_chunks; ++c) {
          locate(a, item, chunk + c, end_position, pass.chunks[c]);
        }
        attend_pass(a, item, pass, num_rows, num_rows <= Tile::kMaxRows, state, tile);
      }
    }
  }

  static void attend(const Arguments& a, Range items) {
    Tile tile;
    typename Source::Scratch scratch;
    for (int64_t i = items.begin; i < items.end; ++i) {
      attend_item(a, a.plan->items[i], tile, scratch);
    }
  }

  static void merge(const Arguments& a, Range tokens) {
    const int value_dim = Source::value_dim(a);
    const int padded_value_dim = Source::shape(a).value_dim;
    const int group = Source::group(a);
    const int64_t stride = partial_stride(padded_value_dim);
    for (int64_t i = 0; i < a.plan->num_merges; ++i) {
      const AttentionMerge& merge = a.plan->merges[i];
      const int num_rows = merge.num_tokens * group;
      for (int row = 0; row < num_rows; ++row) {
        const Row at = {merge.first_token + row / group,
                        int64_t{merge.kv_head} * group + row % group};
        if (at.token < tokens.begin || at.token >= tokens.end) continue;
        float* out = output(a, at);
        float maximum = kNoScore;
        float sum = 0.0f;
        for (int64_t c = 0; c < merge.num_chunks; ++c) {
          const float* partial = a.partials + (merge.first_partial + c * num_rows + row) * stride;
          join(maximum, sum, out, partial[padded_value_dim], partial[padded_value_dim + 1], partial,
               value_dim);
        }
        finish(a, at.head, maximum, sum, out);
      }
    }
  }
};

}  // namespace tw::kernels
