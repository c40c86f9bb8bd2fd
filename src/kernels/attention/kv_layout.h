// Where a token's key and value lie in the paged KV cache of one layer.
//
// Keys and values are bf16 or fp8 (e4m3, half the memory), in two arrays. A page stands for
// page_size tokens of all KV heads:
//
//   keys    [num_kv_heads][num_pages][page_size / 16]  of blocks of 16 tokens:
//             [head_dim / 2]      {[16 tokens][2 dimensions]}
//   values  [num_kv_heads][num_pages][page_size / 16]  of blocks of 16 tokens:
//             [padded_head_dim / 16][8]  {[16 dimensions][2 tokens]}
//
// Heads are outermost: attention reads one head at a time, and with pages outermost a head's blocks
// would lie a power of two apart and share a fraction of the cache's sets (measured: a tenth of
// prefill at 8 KV heads). It also lets a thread or a memory node own whole heads.
//
// Both blocks are the layout of a packed weight (gemm/packed_weight.h): 64 bytes (fp8: 32) of 16
// outputs times two steps of the sum. For q k^T the outputs are tokens and the sum runs over
// dimensions; for p v the outputs are dimensions and the sum runs over tokens. So
//   - no kernel needs a horizontal sum, and one micro-kernel computes both products;
//   - widening to fp32 costs one shift or one mask per 16 values, and no shuffle;
//   - it is what AVX512-BF16's dot product and AMX's B tiles read, when those come.
// What it costs: a token's key is stored as head_dim / 2 words that are 64 bytes apart. That is
// done once per token, against reading the key at every later step.
//
// An fp8 cache holds keys and values divided by scales of the layer, which checkpoints may bring
// (AttentionArguments); what exceeds 448 is clamped to it.
//
// A head's 16 tokens are contiguous (2 to 4 KB for head_dim 64 to 128 in bf16): enough for the
// memory to stream, whatever order the pages come in, and better when they come in order. Tokens
// past the end of a sequence may hold anything; kernels never let them into a sum.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/status.h"

namespace tw::kernels {

inline constexpr int kTokenBlock = 16;  // tokens that a vector's lanes stand for

enum class KvType : uint8_t { bf16, fp8_e4m3 };

constexpr int64_t element_size(KvType type) {
  return type == KvType::bf16 ? sizeof(bf16_t) : sizeof(f8_e4m3_t);
}

struct KvLayout {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;   // a multiple of 8, at most kMaxHeadDim
  int32_t page_size = 0;  // tokens; a multiple of kTokenBlock
  int64_t num_pages = 0;
  KvType type = KvType::bf16;

  static constexpr int32_t kMaxHeadDim = 256;

  bool operator==(const KvLayout&) const = default;

  // Fails with invalid_argument or unsupported, naming the number that does not fit.
  Status validate() const;

  int64_t padded_head_dim() const { return (int64_t{head_dim} + 15) / 16 * 16; }
  int64_t key_block_size() const { return int64_t{head_dim} * kTokenBlock; }
  int64_t value_block_size() const { return padded_head_dim() * kTokenBlock; }
  int64_t blocks_per_page() const { return page_size / kTokenBlock; }

  // Elements of one page of a layer, all heads together.
  int64_t key_page_size() const { return num_kv_heads * blocks_per_page() * key_block_size(); }
  int64_t value_page_size() const { return num_kv_heads * blocks_per_page() * value_block_size(); }

  // Bytes of keys and values that a token takes in one layer.
  int64_t bytes_per_token() const {
    return num_kv_heads * (head_dim + padded_head_dim()) * element_size(type);
  }

  // Index of the block that holds a token: `slot` is page * page_size + offset in the page.
  int64_t block_index(int64_t slot, int64_t kv_head) const {
    const int64_t page = slot / page_size;
    const int64_t block = slot % page_size / kTokenBlock;
    return (kv_head * num_pages + page) * blocks_per_page() + block;
  }
  // Element offsets of dimension d, for tests and tools.
  int64_t key_offset(int64_t slot, int64_t kv_head, int64_t d) const {
    const int64_t token = slot % kTokenBlock;
    return block_index(slot, kv_head) * key_block_size() + d / 2 * 32 + token * 2 + d % 2;
  }
  int64_t value_offset(int64_t slot, int64_t kv_head, int64_t d) const {
    const int64_t token = slot % kTokenBlock;
    return block_index(slot, kv_head) * value_block_size() + d / 16 * 256 + token / 2 * 32 +
           d % 16 * 2 + token % 2;
  }
};

}  // namespace tw::kernels
