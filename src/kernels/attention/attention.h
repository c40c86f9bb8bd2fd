// Causal attention of a batch's new tokens over the paged KV cache.
//
//   out[t, h] = sum_j softmax_j(scale * q[t, h] . key[j, h / group]) value[j, h / group]
//
// over the positions j <= position(t) of t's sequence (the last `sliding_window` of them if set;
// those of t's own piece of `attention_chunk` positions if that is). Several query heads (a group)
// share a KV head. The keys and values of the batch's own tokens are already in the cache
// (kernels/rope/rope.h writes them).
//
// One algorithm serves prefill and decode. The context is cut into chunks of kAttentionChunk
// positions at fixed absolute places. For a query token and head, each chunk gives a partial
// softmax - maximum, sum, weighted values - in a fixed order of operations, and the partials are
// merged in order of position (Milakov and Gimelshein, 2018; Dao et al., 2022 and 2023). Nothing in
// that depends on which other tokens are computed beside it. So the result is the same bits
// whether a prompt came whole, in pieces or token by token, on any number of threads and on any
// instruction set.
//
// Work is divided by a plan, made once per step and used by all layers:
//   - prefill: blocks of query tokens times one KV head with its whole group, so that a chunk of
//     keys and values is loaded into cache once for all rows of the block;
//   - decode: one token's group; a long context is split over threads at borders of chunks
//     (flash-decoding). The partials of such a split go to memory, and merge() joins them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/kernel_table.h"

namespace tw::kernels {

// Positions whose partial softmax is computed together. 256 tokens of keys and values of one head
// take 64 KB (head_dim 64) or 128 KB (128): they stay in L2 while the rows of a block pass over
// them, and 12 rows of scores (12 KB) stay in L1.
inline constexpr int kAttentionChunk = 256;

// Query rows (tokens times heads of a group) of one work item.
inline constexpr int kMaxAttentionRows = 256;

// The first position that a token at `position` sees, or less than 0 for the first of all.
[[gnu::always_inline]] inline int64_t first_visible(int64_t position, int32_t sliding_window,
                                                    int32_t attention_chunk) {
  const int64_t of_window = sliding_window > 0 ? position + 1 - sliding_window : 0;
  const int64_t of_chunk = attention_chunk > 0 ? position - position % attention_chunk : 0;
  return of_window > of_chunk ? of_window : of_chunk;
}

// What the division of work must know of a kind of attention.
struct AttentionWork {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;     // a group of heads is one row of items' work
  int32_t value_dim = 0;        // padded to 16
  int32_t sliding_window = 0;   // positions a token sees, itself included; 0: all
  int32_t attention_chunk = 0;  // a token sees its own piece of so many positions alone; 0: all

  bool operator==(const AttentionWork&) const = default;
  int32_t group_size() const { return num_heads / num_kv_heads; }
};

struct AttentionShape {
  int32_t num_heads = 0;
  KvLayout layout;              // KV heads, head_dim, page_size
  float scale = 0.0f;           // usually 1 / sqrt(head_dim)
  int32_t sliding_window = 0;   // positions a token sees, itself included; 0: all
  float soft_cap = 0.0f;        // scores become soft_cap * tanh(score / soft_cap); 0: as they are
  int32_t attention_chunk = 0;  // a token sees its own piece of so many positions alone; 0: all

  bool operator==(const AttentionShape&) const = default;

  int32_t group_size() const { return num_heads / layout.num_kv_heads; }
  AttentionWork work() const {
    return {num_heads, layout.num_kv_heads, static_cast<int32_t>(layout.padded_head_dim()),
            sliding_window, attention_chunk};
  }
  // Fails with invalid_argument or unsupported, naming the number that does not fit.
  Status validate() const;
};

// The arrays of a step; see nn/batch.h. A sequence's tokens have consecutive positions.
struct AttentionBatch {
  std::span<const int32_t> positions;          // [num_tokens]
  std::span<const int32_t> seq_starts;         // [num_seqs + 1] into tokens
  std::span<const int32_t> page_tables;        // page ids of all sequences
  std::span<const int32_t> page_table_starts;  // [num_seqs + 1] into page_tables

  int32_t num_seqs() const { return static_cast<int32_t>(seq_starts.size()) - 1; }
};

// What one thread does at a time: query tokens of a sequence, one KV head, some chunks.
struct AttentionItem {
  int32_t seq;
  int32_t kv_head;
  int32_t first_token;  // in the batch
  int32_t num_tokens;
  int32_t first_chunk;    // of the sequence
  int32_t last_chunk;     // exclusive
  int32_t first_partial;  // partials of chunk c, row r go to first_partial + (c - first_chunk) *
                          // rows + r; -1: the item covers the whole context and writes `out`
};

// Partials that merge() joins into `out`.
struct AttentionMerge {
  int32_t kv_head;
  int32_t first_token;
  int32_t num_tokens;
  int32_t num_chunks;
  int32_t first_partial;
};

// The largest step that a plan must hold.
struct AttentionLimits {
  int32_t max_num_tokens = 0;
  int32_t max_num_seqs = 0;
  int64_t max_context_len = 0;
  int32_t num_threads = 1;
};

// Arrays inside caller-owned memory, refilled each step by build_attention_plan().
struct AttentionPlan {
  AttentionItem* items = nullptr;
  AttentionMerge* merges = nullptr;
  int32_t* thread_starts = nullptr;  // [num_threads + 1] into items
  int64_t max_items = 0;
  int64_t max_merges = 0;
  int64_t max_partials = 0;
  int32_t num_threads = 0;
  int64_t num_items = 0;
  int64_t num_merges = 0;
  int64_t num_partials = 0;

  Range items_of(int rank) const { return {thread_starts[rank], thread_starts[rank + 1]}; }
};

// Bytes of memory for a plan's arrays, and the plan laid out in it (8-byte aligned).
size_t attention_plan_size(const AttentionWork& work, const AttentionLimits& limits);
AttentionPlan layout_attention_plan(const AttentionWork& work, const AttentionLimits& limits,
                                    std::byte* memory);

// Bytes of memory for the partials of a split context (64-byte aligned, shared by all layers).
size_t attention_partials_size(const AttentionWork& work, const AttentionLimits& limits);

// Divides a step's work over the plan's threads. Layers whose work differs (in its window, say)
// need plans of their own. Allocates nothing; takes microseconds. Call it from one thread, with a
// barrier before the plan's use.
void build_attention_plan(const AttentionWork& work, const AttentionBatch& batch,
                          AttentionPlan& plan);

struct AttentionArguments {
  AttentionShape shape;
  AttentionBatch batch;
  const AttentionPlan* plan = nullptr;
  Matrix<const float> q;              // [num_tokens, num_heads * head_dim]
  Matrix<float> out;                  // [num_tokens, num_heads * head_dim]; not q
  const std::byte* keys = nullptr;    // the layer's pages, 64-byte aligned
  const std::byte* values = nullptr;  // the layer's pages, 64-byte aligned
  float key_scale = 1.0f;             // what the cache's keys ...
  float value_scale = 1.0f;           // ... and values are multiplied by
  const float* sinks = nullptr;       // [num_heads] or null: a logit per head that takes its share
                                      // of the softmax and adds no value (gpt-oss)
  float* partials = nullptr;
};

struct AttentionKernels {
  // Items [items.begin, items.end) of the plan. Writes `out`, or partials.
  void (*attend)(const AttentionArguments& arguments, Range items);
  // After a barrier: joins the partials of tokens [tokens.begin, tokens.end). Splitting it by rows
  // as the next step does saves the barrier between the two.
  void (*merge)(const AttentionArguments& arguments, Range tokens);
};

std::span<const KernelRow<AttentionKernels>> attention_kernels(KvType type);
const AttentionKernels& select_attention(const CpuFeatures& features, KvType type);

namespace scalar {
extern const AttentionKernels kAttentionKernels;
extern const AttentionKernels kAttentionFp8Kernels;
}  // namespace scalar
namespace avx2 {
extern const AttentionKernels kAttentionKernels;
extern const AttentionKernels kAttentionFp8Kernels;
}  // namespace avx2
namespace avx512 {
extern const AttentionKernels kAttentionKernels;
extern const AttentionKernels kAttentionFp8Kernels;
}  // namespace avx512

}  // namespace tw::kernels
