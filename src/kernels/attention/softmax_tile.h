// The partial softmax of some query rows over one chunk of the context, over Vec
// (math/vector_scalar.h): the arithmetic that all kinds of attention share. The order of operations
// is described in attention.h, the blocks that keys and values come in are those of kv_layout.h.
//
// For a tile of R rows and one chunk of 256 positions:
//   1. queries are scaled into an [R, key_dim] array, once per pass over chunks    (L1)
//   2. scores[R, 256] = queries * keys^T, B blocks of 16 tokens at a time          (L1)
//   3. per row: maximum, exponentials in place, their sum
//   4. acc[R, value_dim] = scores * values, B blocks of 16 dimensions at a time
// 2 and 4 are the same product: rows of fp32 times 32 elements of the cache, 16 outputs times two
// steps of the sum (multiply_pairs). It keeps R x B vectors of accumulators in registers; each load
// serves 2 R products, each broadcast element of a row serves B.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/math/functions.h"

namespace tw::kernels {

constexpr int kBlocksPerChunk = kAttentionChunk / kTokenBlock;
constexpr float kNoScore = -__builtin_inff();

// What a loaded element must be multiplied by: Vec loads e4m3 times 2^-8, which costs nothing here,
// as it joins a factor that is there anyway.
template <typename Element>
constexpr float kElementUnit = 1.0f;
template <>
constexpr float kElementUnit<f8_e4m3_t> = 256.0f;

// Where the blocks of one chunk of the context lie.
template <typename Element>
struct Chunk {
  int64_t begin;  // absolute position of its first token
  int num_blocks;
  const Element* keys[kBlocksPerChunk];
  const Element* values[kBlocksPerChunk];
  // The block whose lines are prefetched while a block is used.
  const Element* after_key[kBlocksPerChunk];
  const Element* after_value[kBlocksPerChunk];
};

// What a tile must know of the problem.
struct TileShape {
  int key_dim;    // even
  int value_dim;  // padded to 16
  int sliding_window;
  float soft_cap;
  int attention_chunk;
};

template <typename Vec, int kMaxKeyDim, int kMaxValueDim>
struct SoftmaxTile {
  // Rows of the largest tile.
  static constexpr int kMaxRows = Vec::kRegisters >= 30 ? 12 : 6;
  // Floats between rows: a line more than there can be, so that rows don't share cache sets.
  static constexpr int kQueryStride = kMaxKeyDim + 16;
  static constexpr int kScoreStride = kAttentionChunk + 16;

  alignas(64) float queries[kMaxRows * kQueryStride];
  alignas(64) float scores[kMaxRows * kScoreStride];
  alignas(64) float acc[kMaxRows * kMaxValueDim];  // [R][value_dim]
  float maximum[kMaxRows];
  float sum[kMaxRows];
  int64_t position[kMaxRows];
  // Positions of the chunk that each row sees; both 0 if none.
  int first[kMaxRows];
  int last[kMaxRows];

  // B for a tile of R rows: as many as fit into the registers with their accumulators, at most 4,
  // so that even one row has four independent chains of FMAs. With fewer rows than blocks, blocks
  // are loaded one after the other.
  static constexpr bool fits(int rows, int blocks) {
    return rows * blocks + (rows < blocks ? 1 : blocks) <= Vec::kRegisters;
  }
  static constexpr int blocks_for(int rows) { return fits(rows, 4) ? 4 : fits(rows, 2) ? 2 : 1; }

  static int smaller(int a, int b) { return a < b ? a : b; }
  static int larger(int a, int b) { return a > b ? a : b; }

  // sums[r][b] += rows[r] * load(b)
  template <int R, int B, int kStride, typename Load>
  [[gnu::always_inline]] static void multiply_step(const float* rows, Load load,
                                                   Vec (&sums)[R][B]) {
    if constexpr (R < B) {
      Vec value[R];
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) value[r] = Vec::broadcast(rows[r * kStride]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        const Vec block = load(b);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) sums[r][b] = fma(value[r], block, sums[r][b]);
      }
    } else {
      Vec block[B];
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) block[b] = load(b);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const Vec value = Vec::broadcast(rows[r * kStride]);
#pragma GCC unroll 4
        for (int b = 0; b < B; ++b) sums[r][b] = fma(value, block[b], sums[r][b]);
      }
    }
  }

  // sums[r][b] += sum over count steps k of rows[r][k] * block(b)[k / 2][16][k % 2], in order of k.
  // Meanwhile the same lines of ahead(b) are prefetched.
  template <int R, int B, int kStride, typename BlockPointer, typename AheadPointer>
  [[gnu::always_inline]] static void multiply_pairs(const float* rows, BlockPointer block,
                                                    AheadPointer ahead, int count,
                                                    Vec (&sums)[R][B]) {
    // Even steps are widened and used up before the odd ones: fewer registers are alive at once.
    int k = 0;
    for (; k + 2 <= count; k += 2) {
      const auto even = [&](int b) { return Vec::load_even(block(b) + k * 16); };
      const auto odd = [&](int b) { return Vec::load_odd(block(b) + k * 16); };
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) __builtin_prefetch(ahead(b) + k * 16);
      multiply_step<R, B, kStride>(rows + k, even, sums);
      multiply_step<R, B, kStride>(rows + k + 1, odd, sums);
    }
    if (k == count) return;
    // The other token of the last pair lies past the end and may hold anything.
    const auto first_of_pair = [&](int b) { return Vec::load_even(block(b) + k * 16); };
    multiply_step<R, B, kStride>(rows + k, first_of_pair, sums);
  }

  // Scores of B blocks of tokens, from the chunk's block `first_block` on.
  template <int R, int B, typename Element>
  [[gnu::noinline]] void score_blocks(const Chunk<Element>& chunk, int first_block, int key_dim) {
    const Element* const* keys = chunk.keys + first_block;
    const Element* const* after = chunk.after_key + first_block;
    Vec sums[R][B];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) sums[r][b] = Vec::zero();
    }
    multiply_pairs<R, B, kQueryStride>(
        queries, [keys](int b) { return keys[b]; }, [after](int b) { return after[b]; }, key_dim,
        sums);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        sums[r][b].store(scores + r * kScoreStride + (first_block + b) * 16);
      }
    }
  }

  // Adds tokens [begin, end) of the chunk to B blocks of dimensions; begin is that of a block.
  template <int R, int B, typename Element>
  [[gnu::noinline]] void add_values(const Chunk<Element>& chunk, int64_t dimension, int begin,
                                    int end, int64_t value_dim) {
    Vec sums[R][B];
    float* const acc_rows = acc + dimension;
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) sums[r][b] = Vec::load(acc_rows + r * value_dim + b * 16);
    }
    for (int token = begin; token < end; token += 16) {
      const Element* block = chunk.values[token / 16] + dimension * 16;
      const Element* after = chunk.after_value[token / 16] + dimension * 16;
      multiply_pairs<R, B, kScoreStride>(
          scores + token, [block](int b) { return block + b * 256; },
          [after](int b) { return after + b * 256; }, smaller(end - token, 16), sums);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) sums[r][b].store(acc_rows + r * value_dim + b * 16);
    }
  }

  // Turns a row's scores into exponentials; those of the tile's other positions become 0.
  void exponentiate(float soft_cap, int row, int tile_first, int tile_last) {
    float* row_scores = scores + row * kScoreStride;
    const int row_first = first[row];
    const int row_last = last[row];
    const int begin = row_first / 16 * 16;
    const int end = (row_last + 15) / 16 * 16;
    for (int j = tile_first; j < begin; ++j) row_scores[j] = 0.0f;
    for (int j = end; j < tile_last; ++j) row_scores[j] = 0.0f;
    maximum[row] = kNoScore;
    sum[row] = 0.0f;
    if (row_first == row_last) return;
    if (soft_cap > 0.0f) {
      const Vec cap = Vec::broadcast(soft_cap);
      for (int j = begin; j < end; j += 16) {
        (cap * vector_tanh(Vec::load(row_scores + j))).store(row_scores + j);
      }
    }
    for (int j = begin; j < row_first; ++j) row_scores[j] = kNoScore;
    for (int j = row_last; j < end; ++j) row_scores[j] = kNoScore;

    Vec best = Vec::load(row_scores + begin);
    for (int j = begin + 16; j < end; j += 16) best = max(Vec::load(row_scores + j), best);
    const float largest = best.reduce_max();
    const Vec shift = Vec::broadcast(largest);
    Vec total = Vec::zero();
    for (int j = begin; j < end; j += 16) {
      const Vec value = vector_exp(Vec::load(row_scores + j) - shift);
      value.store(row_scores + j);
      total = total + value;
    }
    maximum[row] = largest;
    sum[row] = total.reduce_add();
  }

  // What each row sees of a chunk; the result is what all of them see together.
  template <int R>
  void find_visible(const TileShape& shape, int64_t chunk_begin, int& tile_first, int& tile_last) {
    tile_first = kAttentionChunk;
    tile_last = 0;
    for (int r = 0; r < R; ++r) {
      const int64_t start = first_visible(position[r], shape.sliding_window, shape.attention_chunk);
      const int64_t row_first = start > chunk_begin ? start - chunk_begin : 0;
      const int64_t row_last = position[r] + 1 - chunk_begin;
      const bool sees_any = row_first < kAttentionChunk && row_last > row_first;
      first[r] = sees_any ? static_cast<int>(row_first) : 0;
      last[r] = !sees_any                    ? 0
                : row_last < kAttentionChunk ? static_cast<int>(row_last)
                                             : kAttentionChunk;
      if (!sees_any) continue;
      tile_first = smaller(tile_first, first[r] / 16 * 16);
      tile_last = larger(tile_last, last[r]);
    }
  }

  // The partial softmax of R rows, whose queries and positions are set, over one chunk: fills
  // maximum, sum and acc.
  template <int R, typename Element>
  [[gnu::noinline]] void attend(const TileShape& shape, const Chunk<Element>& chunk) {
    int tile_first;
    int tile_last;
    find_visible<R>(shape, chunk.begin, tile_first, tile_last);

    constexpr int B = blocks_for(R);
    const int end_block = (tile_last + 15) / 16;
    int block = tile_first / 16;
    for (; block + B <= end_block; block += B) score_blocks<R, B>(chunk, block, shape.key_dim);
    for (; block < end_block; ++block) score_blocks<R, 1>(chunk, block, shape.key_dim);

    for (int r = 0; r < R; ++r) exponentiate(shape.soft_cap, r, tile_first, end_block * 16);

    const int value_dim = shape.value_dim;
    for (int i = 0; i < R * value_dim; i += 16) Vec::zero().store(acc + i);
    // Four blocks of tokens at a time: their values stay in L1 while all dimensions are summed.
    for (int begin = tile_first; begin < tile_last; begin += 64) {
      const int end = smaller(begin + 64, tile_last);
      int d = 0;
      for (; d + 16 * B <= value_dim; d += 16 * B) {
        add_values<R, B>(chunk, d, begin, end, value_dim);
      }
      for (; d < value_dim; d += 16) add_values<R, 1>(chunk, d, begin, end, value_dim);
    }
  }
};

}  // namespace tw::kernels
