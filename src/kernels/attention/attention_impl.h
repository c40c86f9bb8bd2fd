// Attention over Vec (math/vector_scalar.h). The problem, the order of operations and the division
// of work are described in attention.h, the layout of keys and values in kv_layout.h.
//
// An item's rows are done in tiles of R, over a pass of chunks that fits into L2. For a tile and
// one chunk of 256 positions:
//   1. queries are scaled into an [R, head_dim] array, once per pass                  (L1)
//   2. scores[R, 256] = queries * keys^T, B blocks of 16 tokens at a time             (L1)
//   3. per row: maximum, exponentials in place, their sum
//   4. acc[R, head_dim] = scores * values, B blocks of 16 dimensions at a time
// 2 and 4 are the same product: rows of fp32 times 64-byte pairs of the cache (multiply_pairs). It
// keeps R x B vectors of accumulators in registers; each 64 bytes loaded serve 2 R products, each
// broadcast element of a row serves B.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/partial.h"
#include "kernels/math/functions.h"

namespace tw::kernels {

// Floats between rows of queries and scores: room for a chunk or the largest head, plus a line so
// that rows don't share cache sets.
constexpr int kRowStride = 256 + 16;
static_assert(kAttentionChunk <= 256 && KvLayout::kMaxHeadDim <= 256);
constexpr int kBlocksPerChunk = kAttentionChunk / kTokenBlock;
constexpr float kNoScore = -__builtin_inff();

template <typename Vec>
struct Attention {
  // Rows of the largest tile.
  static constexpr int kMaxTileRows = Vec::kRegisters >= 30 ? 12 : 6;

  // B for a tile of R rows: as many as fit into the registers with their accumulators, at most 4,
  // so that even one row has four independent chains of FMAs. With fewer rows than blocks, blocks
  // are loaded one after the other.
  static constexpr bool fits(int rows, int blocks) {
    return rows * blocks + (rows < blocks ? 1 : blocks) <= Vec::kRegisters;
  }
  static constexpr int blocks_for(int rows) { return fits(rows, 4) ? 4 : fits(rows, 2) ? 2 : 1; }

  // Where the context's blocks of one chunk lie.
  struct Chunk {
    int64_t begin;  // absolute position of its first token
    int num_blocks;
    const bf16_t* keys[kBlocksPerChunk];
    const bf16_t* values[kBlocksPerChunk];
    // The block whose lines are prefetched while a block is used: see look_ahead().
    const bf16_t* after_key[kBlocksPerChunk];
    const bf16_t* after_value[kBlocksPerChunk];
  };

  // Chunks whose keys and values stay in L2 (1 MB) while the tiles of an item pass over them.
  static constexpr int kMaxChunksPerPass = 8;
  struct Pass {
    int first_chunk;
    int num_chunks;
    bool is_last;  // of the item
    Chunk chunks[kMaxChunksPerPass];
  };

  // The softmax of each row of an item so far; its weighted values are in `out`.
  struct State {
    float maximum[kMaxAttentionRows];
    float sum[kMaxAttentionRows];
  };

  struct Tile {
    alignas(64) float queries[kMaxTileRows * kRowStride];
    alignas(64) float scores[kMaxTileRows * kRowStride];
    alignas(64) float acc[kMaxTileRows * KvLayout::kMaxHeadDim];  // [R][padded_head_dim]
    float maximum[kMaxTileRows];
    float sum[kMaxTileRows];
    // Positions of the chunk that each row sees; both 0 if none.
    int first[kMaxTileRows];
    int last[kMaxTileRows];
  };

  static int smaller(int a, int b) { return a < b ? a : b; }
  static int larger(int a, int b) { return a > b ? a : b; }

  // acc[r][b] += rows[r] * load(b)
  template <int R, int B, typename Load>
  [[gnu::always_inline]] static void multiply_step(const float* rows, Load load, Vec (&acc)[R][B]) {
    if constexpr (R < B) {
      Vec value[R];
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) value[r] = Vec::broadcast(rows[r * kRowStride]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        const Vec block = load(b);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) acc[r][b] = fma(value[r], block, acc[r][b]);
      }
    } else {
      Vec block[B];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) block[b] = load(b);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const Vec value = Vec::broadcast(rows[r * kRowStride]);
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) acc[r][b] = fma(value, block[b], acc[r][b]);
      }
    }
  }

  // acc[r][b] += sum over count steps k of rows[r][k] * block(b)[k / 2][16][k % 2], in order of k.
  // Meanwhile the same lines of ahead(b) are prefetched.
  template <int R, int B, typename BlockPointer, typename AheadPointer>
  [[gnu::always_inline]] static void multiply_pairs(const float* rows, BlockPointer block,
                                                    AheadPointer ahead, int count,
                                                    Vec (&acc)[R][B]) {
    // Even steps are widened and used up before the odd ones: fewer registers are alive at once.
    int k = 0;
    for (; k + 2 <= count; k += 2) {
      const auto even = [&](int b) { return Vec::load_bf16_even(block(b) + k * 16); };
      const auto odd = [&](int b) { return Vec::load_bf16_odd(block(b) + k * 16); };
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) __builtin_prefetch(ahead(b) + k * 16);
      multiply_step<R, B>(rows + k, even, acc);
      multiply_step<R, B>(rows + k + 1, odd, acc);
    }
    if (k == count) return;
    // The other token of the last pair lies past the end and may hold anything.
    const auto last = [&](int b) { return Vec::load_bf16_even(block(b) + k * 16); };
    multiply_step<R, B>(rows + k, last, acc);
  }

  // Scores of B blocks of tokens, the first of them being block `first` of the chunk.
  template <int R, int B>
  [[gnu::noinline]] static void score_blocks(const Chunk& chunk, int first, int head_dim,
                                             const float* queries, float* scores) {
    const bf16_t* const* keys = chunk.keys + first;
    const bf16_t* const* after = chunk.after_key + first;
    Vec acc[R][B];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) acc[r][b] = Vec::zero();
    }
    multiply_pairs<R, B>(
        queries, [keys](int b) { return keys[b]; }, [after](int b) { return after[b]; }, head_dim,
        acc);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) acc[r][b].store(scores + r * kRowStride + (first + b) * 16);
    }
  }

  // Adds tokens [begin, end) of the chunk to B blocks of dimensions; begin is that of a block.
  template <int R, int B>
  [[gnu::noinline]] static void add_values(const Chunk& chunk, int64_t dimension, int begin,
                                           int end, const float* scores, int64_t acc_stride,
                                           float* acc_rows) {
    Vec acc[R][B];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) acc[r][b] = Vec::load(acc_rows + r * acc_stride + b * 16);
    }
    for (int token = begin; token < end; token += 16) {
      const bf16_t* block = chunk.values[token / 16] + dimension * 16;
      const bf16_t* after = chunk.after_value[token / 16] + dimension * 16;
      multiply_pairs<R, B>(
          scores + token, [block](int b) { return block + b * 256; },
          [after](int b) { return after + b * 256; }, smaller(end - token, 16), acc);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) acc[r][b].store(acc_rows + r * acc_stride + b * 16);
    }
  }

  // Turns a row's scores into exponentials; those of the tile's other positions become 0.
  static void exponentiate(const AttentionShape& shape, int row, int tile_first, int tile_last,
                           Tile& tile) {
    float* scores = tile.scores + row * kRowStride;
    const int first = tile.first[row];
    const int last = tile.last[row];
    const int begin = first / 16 * 16;
    const int end = (last + 15) / 16 * 16;
    for (int j = tile_first; j < begin; ++j) scores[j] = 0.0f;
    for (int j = end; j < tile_last; ++j) scores[j] = 0.0f;
    tile.maximum[row] = kNoScore;
    tile.sum[row] = 0.0f;
    if (first == last) return;
    if (shape.soft_cap > 0.0f) {
      const Vec cap = Vec::broadcast(shape.soft_cap);
      for (int j = begin; j < end; j += 16) {
        (cap * vector_tanh(Vec::load(scores + j))).store(scores + j);
      }
    }
    for (int j = begin; j < first; ++j) scores[j] = kNoScore;
    for (int j = last; j < end; ++j) scores[j] = kNoScore;

    Vec best = Vec::load(scores + begin);
    for (int j = begin + 16; j < end; j += 16) best = max(Vec::load(scores + j), best);
    const float maximum = best.reduce_max();
    const Vec shift = Vec::broadcast(maximum);
    Vec sum = Vec::zero();
    for (int j = begin; j < end; j += 16) {
      const Vec value = vector_exp(Vec::load(scores + j) - shift);
      value.store(scores + j);
      sum = sum + value;
    }
    tile.maximum[row] = maximum;
    tile.sum[row] = sum.reduce_add();
  }

  static void locate(const AttentionArguments& a, const AttentionItem& item, int64_t chunk_index,
                     int64_t end_position, Chunk& chunk) {
    const KvLayout& layout = a.shape.layout;
    const int32_t* pages = a.batch.page_tables.data() + a.batch.page_table_starts.data()[item.seq];
    const int64_t blocks_per_page = layout.page_size / kTokenBlock;
    const int64_t key_block = int64_t{layout.head_dim} * kTokenBlock;
    const int64_t value_block = (int64_t{layout.head_dim} + 15) / 16 * 16 * kTokenBlock;
    chunk.begin = chunk_index * kAttentionChunk;
    chunk.num_blocks = 0;
    for (int i = 0; i < kBlocksPerChunk; ++i) {
      const int64_t position = chunk.begin + i * kTokenBlock;
      if (position >= end_position) break;
      const int64_t block = position / kTokenBlock;
      const int64_t page = pages[block / blocks_per_page];
      const int64_t index =
          (item.kv_head * layout.num_pages + page) * blocks_per_page + block % blocks_per_page;
      chunk.keys[i] = a.keys + index * key_block;
      chunk.values[i] = a.values + index * value_block;
      chunk.num_blocks = i + 1;
    }
  }

  // Chooses what is prefetched. When a pass has one tile, keys and values come from memory, each
  // once: the lines of the block that is used four blocks later are asked for, one for each line
  // used. (Pages come in any order, which the processor's prefetchers can't guess.) With more tiles
  // they come from L2, and a block stands for itself, which costs next to nothing.
  static void look_ahead(bool is_single_tile, Pass& pass) {
    constexpr int kDistance = 4;
    for (int c = 0; c < pass.num_chunks; ++c) {
      Chunk& chunk = pass.chunks[c];
      const int n = chunk.num_blocks;
      const Chunk* next = c + 1 < pass.num_chunks ? &pass.chunks[c + 1] : nullptr;
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

  // Which rows of an item a tile holds. Rows are numbered token by token, head by head.
  struct Rows {
    int64_t token[kMaxTileRows];
    int64_t head[kMaxTileRows];
    int64_t position[kMaxTileRows];
  };

  template <int R>
  static void load_queries(const AttentionArguments& a, const AttentionItem& item, int first_row,
                           Rows& rows, Tile& tile) {
    const AttentionShape& shape = a.shape;
    const int head_dim = shape.layout.head_dim;
    const int group = shape.num_heads / shape.layout.num_kv_heads;
    const Vec factor =
        Vec::broadcast(shape.soft_cap > 0.0f ? shape.scale / shape.soft_cap : shape.scale);
    for (int r = 0; r < R; ++r) {
      rows.token[r] = item.first_token + (first_row + r) / group;
      rows.head[r] = int64_t{item.kv_head} * group + (first_row + r) % group;
      rows.position[r] = a.batch.positions.data()[rows.token[r]];
      const float* query = a.q.data + rows.token[r] * a.q.row_stride + rows.head[r] * head_dim;
      float* scaled = tile.queries + r * kRowStride;
      for (int d = 0; d < head_dim; d += 16) {
        (Vec::load_first(query + d, head_dim - d) * factor).store(scaled + d);
      }
    }
  }

  // What each row sees of a chunk, and what all of them see together.
  template <int R>
  static void find_visible(const AttentionShape& shape, const Chunk& chunk, const Rows& rows,
                           Tile& tile, int& tile_first, int& tile_last) {
    tile_first = kAttentionChunk;
    tile_last = 0;
    for (int r = 0; r < R; ++r) {
      const int64_t position = rows.position[r];
      const int64_t start = shape.sliding_window > 0 ? position + 1 - shape.sliding_window : 0;
      const int64_t first = start > chunk.begin ? start - chunk.begin : 0;
      const int64_t last = position + 1 - chunk.begin;
      const bool sees_any = first < kAttentionChunk && last > first;
      tile.first[r] = sees_any ? static_cast<int>(first) : 0;
      tile.last[r] = !sees_any                ? 0
                     : last < kAttentionChunk ? static_cast<int>(last)
                                              : kAttentionChunk;
      if (!sees_any) continue;
      tile_first = smaller(tile_first, tile.first[r] / 16 * 16);
      tile_last = larger(tile_last, tile.last[r]);
    }
  }

  // The partial softmax of R rows over one chunk.
  template <int R>
  [[gnu::noinline]] static void attend_tile(const AttentionShape& shape, const Rows& rows,
                                            const Chunk& chunk, Tile& tile) {
    const int head_dim = shape.layout.head_dim;
    const int padded_head_dim = (head_dim + 15) / 16 * 16;
    int tile_first;
    int tile_last;
    find_visible<R>(shape, chunk, rows, tile, tile_first, tile_last);

    constexpr int B = blocks_for(R);
    const int end_block = (tile_last + 15) / 16;
    int block = tile_first / 16;
    for (; block + B <= end_block; block += B) {
      score_blocks<R, B>(chunk, block, head_dim, tile.queries, tile.scores);
    }
    for (; block < end_block; ++block) {
      score_blocks<R, 1>(chunk, block, head_dim, tile.queries, tile.scores);
    }

    for (int r = 0; r < R; ++r) exponentiate(shape, r, tile_first, end_block * 16, tile);

    for (int i = 0; i < R * padded_head_dim; i += 16) Vec::zero().store(tile.acc + i);
    // Four blocks of tokens at a time: their values stay in L1 while all dimensions are summed.
    for (int begin = tile_first; begin < tile_last; begin += 64) {
      const int end = smaller(begin + 64, tile_last);
      int d = 0;
      for (; d + 16 * B <= padded_head_dim; d += 16 * B) {
        add_values<R, B>(chunk, d, begin, end, tile.scores, padded_head_dim, tile.acc + d);
      }
      for (; d < padded_head_dim; d += 16) {
        add_values<R, 1>(chunk, d, begin, end, tile.scores, padded_head_dim, tile.acc + d);
      }
    }
  }

  // Joins a later part of the context (second) to an earlier one. A part without any position has
  // sum 0 and leaves the other as it is, bit for bit.
  static void join(float& maximum, float& sum, float* acc, float second_maximum, float second_sum,
                   const float* second_acc, int head_dim) {
    if (second_sum == 0.0f) return;
    if (sum == 0.0f) {
      maximum = second_maximum;
      sum = second_sum;
      for (int d = 0; d < head_dim; d += 16) {
        Vec::load(second_acc + d).store_first(acc + d, head_dim - d);
      }
      return;
    }
    const float joint = maximum > second_maximum ? maximum : second_maximum;
    const Vec weight = vector_exp(Vec::broadcast(maximum - joint));
    const Vec second_weight = vector_exp(Vec::broadcast(second_maximum - joint));
    maximum = joint;
    const Vec sums = fma(Vec::broadcast(sum), weight, Vec::broadcast(second_sum) * second_weight);
    sums.store_first(&sum, 1);
    for (int d = 0; d < head_dim; d += 16) {
      const Vec scaled = Vec::load(second_acc + d) * second_weight;
      fma(Vec::load_first(acc + d, head_dim - d), weight, scaled)
          .store_first(acc + d, head_dim - d);
    }
  }

  // Divides by the sum, in which a sink takes part.
  static void finish(const AttentionArguments& a, int64_t head, float maximum, float sum,
                     float* acc, int head_dim) {
    Vec factor = Vec::broadcast(1.0f / sum);
    if (a.sinks != nullptr) {
      const float sink = a.sinks[head];
      const float joint = maximum > sink ? maximum : sink;
      const Vec weight = vector_exp(Vec::broadcast(maximum - joint));
      const Vec sink_weight = vector_exp(Vec::broadcast(sink - joint));
      factor = weight / fma(Vec::broadcast(sum), weight, sink_weight);
    }
    for (int d = 0; d < head_dim; d += 16) {
      (Vec::load_first(acc + d, head_dim - d) * factor).store_first(acc + d, head_dim - d);
    }
  }

  // A pass over some chunks, R rows at a time: a tile's queries and results stay in L1 meanwhile.
  template <int R>
  static int attend_rows(const AttentionArguments& a, const AttentionItem& item, const Pass& pass,
                         int first_row, State& state, Tile& tile) {
    const int head_dim = a.shape.layout.head_dim;
    const int padded_head_dim = (head_dim + 15) / 16 * 16;
    const int num_rows = item.num_tokens * (a.shape.num_heads / a.shape.layout.num_kv_heads);
    Rows rows;
    load_queries<R>(a, item, first_row, rows, tile);
    for (int c = 0; c < pass.num_chunks; ++c) {
      attend_tile<R>(a.shape, rows, pass.chunks[c], tile);
      for (int r = 0; r < R; ++r) {
        const int row = first_row + r;
        const float* acc = tile.acc + r * padded_head_dim;
        if (item.first_partial >= 0) {
          const int64_t index =
              item.first_partial + (pass.first_chunk - item.first_chunk + c) * num_rows + row;
          float* partial = a.partials + index * partial_stride(padded_head_dim);
          for (int d = 0; d < padded_head_dim; d += 16) Vec::load(acc + d).store(partial + d);
          partial[padded_head_dim] = tile.maximum[r];
          partial[padded_head_dim + 1] = tile.sum[r];
        } else {
          float* out = a.out.data + rows.token[r] * a.out.row_stride + rows.head[r] * head_dim;
          join(state.maximum[row], state.sum[row], out, tile.maximum[r], tile.sum[r], acc,
               head_dim);
          if (pass.is_last && c + 1 == pass.num_chunks) {
            finish(a, rows.head[r], state.maximum[row], state.sum[row], out, head_dim);
          }
        }
      }
    }
    return R;
  }

  // Takes as many rows as the largest tile that fits; returns how many.
  static int attend_some_rows(const AttentionArguments& a, const AttentionItem& item,
                              const Pass& pass, int first_row, int num_rows, State& state,
                              Tile& tile) {
    if constexpr (kMaxTileRows >= 12) {
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

  static void attend_item(const AttentionArguments& a, const AttentionItem& item, Tile& tile) {
    const KvLayout& layout = a.shape.layout;
    const int num_rows = item.num_tokens * (a.shape.num_heads / layout.num_kv_heads);
    const int64_t end_position =
        int64_t{a.batch.positions.data()[item.first_token + item.num_tokens - 1]} + 1;
    State state;
    for (int row = 0; row < num_rows; ++row) {
      state.maximum[row] = kNoScore;
      state.sum[row] = 0.0f;
    }
    const int chunks_per_pass = layout.head_dim <= 128 ? kMaxChunksPerPass : kMaxChunksPerPass / 2;
    Pass pass;
    for (int chunk = item.first_chunk; chunk < item.last_chunk; chunk += pass.num_chunks) {
      pass.first_chunk = chunk;
      pass.num_chunks = smaller(item.last_chunk - chunk, chunks_per_pass);
      pass.is_last = chunk + pass.num_chunks == item.last_chunk;
      for (int c = 0; c < pass.num_chunks; ++c) {
        locate(a, item, chunk + c, end_position, pass.chunks[c]);
      }
      look_ahead(num_rows <= kMaxTileRows, pass);
      for (int row = 0; row < num_rows;) {
        row += attend_some_rows(a, item, pass, row, num_rows - row, state, tile);
      }
    }
  }

  static void attend(const AttentionArguments& a, Range items) {
    Tile tile;
    for (int64_t i = items.begin; i < items.end; ++i) attend_item(a, a.plan->items[i], tile);
  }

  static void merge(const AttentionArguments& a, Range tokens) {
    const int head_dim = a.shape.layout.head_dim;
    const int padded_head_dim = (head_dim + 15) / 16 * 16;
    const int group = a.shape.num_heads / a.shape.layout.num_kv_heads;
    const int64_t stride = partial_stride(padded_head_dim);
    for (int64_t i = 0; i < a.plan->num_merges; ++i) {
      const AttentionMerge& merge = a.plan->merges[i];
      const int num_rows = merge.num_tokens * group;
      for (int row = 0; row < num_rows; ++row) {
        const int64_t token = merge.first_token + row / group;
        if (token < tokens.begin || token >= tokens.end) continue;
        const int64_t head = int64_t{merge.kv_head} * group + row % group;
        float* out = a.out.data + token * a.out.row_stride + head * head_dim;
        float maximum = kNoScore;
        float sum = 0.0f;
        for (int64_t c = 0; c < merge.num_chunks; ++c) {
          const float* partial = a.partials + (merge.first_partial + c * num_rows + row) * stride;
          join(maximum, sum, out, partial[padded_head_dim], partial[padded_head_dim + 1], partial,
               head_dim);
        }
        finish(a, head, maximum, sum, out, head_dim);
      }
    }
  }
};

}  // namespace tw::kernels
