// Rotary position embedding of queries and keys, and the writing of keys and values into the
// paged cache: what happens between the qkv projection and attention, in one pass.
//
// Rotation pairs dimension i with i + rotary_dim / 2 (Hugging Face's rotate_half); dimensions from
// rotary_dim on stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/kernel_table.h"

namespace tw::kernels {

// Of a RopeTable (rope_table.h). rotary_dim 0 rotates nothing (layers without positions).
struct RopeView {
  const float* cos = nullptr;  // [max_positions, rotary_dim / 2]
  const float* sin = nullptr;  // [max_positions, rotary_dim / 2]
  int32_t rotary_dim = 0;      // even
};

struct RopeStoreArguments {
  RopeView rope;
  KvLayout layout;
  int32_t num_heads = 0;
  Matrix<float> q;                     // [num_tokens, num_heads * head_dim], rotated in place
  Matrix<const float> k;               // [num_tokens, num_kv_heads * head_dim]
  Matrix<const float> v;               // [num_tokens, num_kv_heads * head_dim]
  const int32_t* positions = nullptr;  // [num_tokens], below the table's max_positions
  const int32_t* kv_slots = nullptr;   // [num_tokens] page * page_size + offset; -1 stores nothing
  std::byte* keys = nullptr;           // a layer's pages, in KvLayout
  std::byte* values = nullptr;
  float key_scale = 1.0f;    // what is stored is the key divided by this,
  float value_scale = 1.0f;  // and the value by this
};

struct RopeKernels {
  // Tokens [tokens.begin, tokens.end). Different tokens may be done by different threads.
  void (*rope_and_store_kv)(const RopeStoreArguments& arguments, Range tokens);
};

std::span<const KernelRow<RopeKernels>> rope_kernels();
const RopeKernels& select_rope(const CpuFeatures& features);

namespace scalar {
extern const RopeKernels kRopeKernels;
}
namespace avx2 {
extern const RopeKernels kRopeKernels;
}
namespace avx512 {
extern const RopeKernels kRopeKernels;
}

}  // namespace tw::kernels
