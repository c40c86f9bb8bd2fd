// Element and block types of tensors in files, and their decoding to float.
// Block layouts follow GGUF's specification (ggml's block_q4_0 and its kin).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tw {

enum class StorageType : uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q4_k,
  q5_k,
  q6_k,
  mxfp4,
  i8,
  i16,
  i32,
  i64,
  f64,
  u8,
  boolean,
  f8_e4m3,
};

struct StorageTypeTraits {
  const char* name;    // as GGUF tools print it: "Q4_0", "BF16"
  int block_elements;  // 1 for plain types
  int block_bytes;
};

const StorageTypeTraits& traits(StorageType type);

// Floats and the quantized types that stand for floats. Not fp8, whose scales lie elsewhere.
bool is_float(StorageType type);

// The scalar reference decoder: `count` elements (whole blocks) from `data` to float.
void dequantize(StorageType type, const std::byte* data, int64_t count, float* out);

// Pieces of the K types' blocks that packing needs undecoded.

// 6-bit multipliers of group 0..7 of a Q4_K or Q5_K block; `packed` is its 12 bytes of scales.
struct KGroupScale {
  int scale;
  int minimum;
};
KGroupScale k_group_scale(const std::byte* packed, int group);

// Quant (0..63) of element 0..255 of a Q6_K block.
int q6_k_quant(const std::byte* block, int index);

// The power of two that an MXFP4 block's numbers 0, 1, 2, 3, 4, 6, 8 and 12 (e2m1 values times two)
// are multiplied by, and the 4 bits (sign and place among them) of element 0..31.
float mxfp4_scale(const std::byte* block);
int mxfp4_code(const std::byte* block, int index);

}  // namespace tw
