// Rotation and the cache write over Vec (math/vector_scalar.h).
//
// A head is rotated into a small array, rounded to the cache's type there, and scattered to its
// lane of the block (attention/kv_layout.h): the scatter is integer work of a few words per head,
// not worth special instructions beside the GEMM that made the head.
#pragma once

#include "kernels/rope/rope.h"

namespace tw::kernels {

// out may be x.
template <typename Vec>
inline void rotate_head(const float* x, const float* cosines, const float* sines, int rotary_dim,
                        float* out) {
  const int half = rotary_dim / 2;
  const auto rotate = [&](int i, int64_t count) {
    const Vec first = Vec::load_first(x + i, count);
    const Vec second = Vec::load_first(x + half + i, count);
    const Vec cosine = Vec::load_first(cosines + i, count);
    const Vec sine = Vec::load_first(sines + i, count);
    (first * cosine - second * sine).store_first(out + i, count);
    (second * cosine + first * sine).store_first(out + half + i, count);
  };
  int i = 0;
  for (; i + 16 <= half; i += 16) rotate(i, 16);
  if (i < half) rotate(i, half - i);
}

// out[d] = x[d] * factor, rounded; padded to 16 with zeros.
template <typename Vec, typename Element>
inline void round_head(const float* x, int head_dim, float factor, Element* out) {
  const Vec factors = Vec::broadcast(factor);
  int d = 0;
  for (; d + 16 <= head_dim; d += 16) (Vec::load(x + d) * factors).store_narrow(out + d);
  if (d < head_dim) (Vec::load_first(x + d, head_dim - d) * factors).store_narrow(out + d);
}

template <typename Vec, typename Element>
void rope_and_store_elements(const RopeStoreArguments& a, Range tokens) {
  const int head_dim = a.layout.head_dim;
  const int padded_head_dim = (head_dim + 15) / 16 * 16;
  const int rotary_dim = a.rope.rotary_dim;
  const int num_kv_heads = a.layout.num_kv_heads;
  const int page_size = a.layout.page_size;
  const int64_t blocks_per_page = page_size / kTokenBlock;
  const float key_factor = 1.0f / a.key_scale;
  const float value_factor = 1.0f / a.value_scale;
  alignas(64) float rotated[KvLayout::kMaxHeadDim];
  alignas(64) Element rounded[KvLayout::kMaxHeadDim];

  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const int64_t angle = int64_t{a.positions[token]} * (rotary_dim / 2);
    const float* cosines = a.rope.cos + angle;
    const float* sines = a.rope.sin + angle;
    float* q = a.q.data + token * a.q.row_stride;
    if (rotary_dim > 0) {
      for (int head = 0; head < a.num_heads; ++head, q += head_dim) {
        rotate_head<Vec>(q, cosines, sines, rotary_dim, q);
      }
    }
    const int64_t slot = a.kv_slots[token];
    if (slot < 0) continue;
    const int64_t lane = slot % kTokenBlock;
    const int64_t first_block = slot / page_size * blocks_per_page + slot % page_size / kTokenBlock;
    for (int head = 0; head < num_kv_heads; ++head) {
      const int64_t block = first_block + head * a.layout.num_pages * blocks_per_page;
      const float* k = a.k.data + token * a.k.row_stride + int64_t{head} * head_dim;
      for (int d = 0; d < head_dim; ++d) rotated[d] = k[d];
      if (rotary_dim > 0) rotate_head<Vec>(rotated, cosines, sines, rotary_dim, rotated);
      round_head<Vec>(rotated, head_dim, key_factor, rounded);
      Element* key = reinterpret_cast<Element*>(a.keys) + block * head_dim * kTokenBlock + lane * 2;
      for (int d = 0; d < head_dim; d += 2) {
        __builtin_memcpy(key + d * 16, rounded + d, 2 * sizeof(Element));
      }
      const float* v = a.v.data + token * a.v.row_stride + int64_t{head} * head_dim;
      round_head<Vec>(v, head_dim, value_factor, rounded);
      Element* value = reinterpret_cast<Element*>(a.values) +
                       block * padded_head_dim * kTokenBlock + lane / 2 * 32 + lane % 2;
      for (int d = 0; d < padded_head_dim; d += 16) {
        for (int i = 0; i < 16; ++i) value[d * 16 + i * 2] = rounded[d + i];
      }
    }
  }
}

template <typename Vec>
void rope_and_store_kv(const RopeStoreArguments& a, Range tokens) {
  if (a.layout.type == KvType::fp8_e4m3) {
    rope_and_store_elements<Vec, f8_e4m3_t>(a, tokens);
  } else {
    rope_and_store_elements<Vec, bf16_t>(a, tokens);
  }
}

}  // namespace tw::kernels
