// Weights in the layouts that the GEMM kernels read.
//
// All instruction sets share ONE packing, built around a panel of 16 output channels (tile_n) and
// groups of 4 bytes along K:
//
//   64 bytes = 16 channels x 4 bytes of K        (4 x int8, or 2 x bf16)
//
// which is a ZMM register for VNNI and AVX512-BF16, a row of an AMX B tile, and two YMM registers
// for AVX2 (channels 0-7, 8-15). SIMD lanes are output channels, so no kernel needs a horizontal
// sum, and a row of the result does not depend on how many rows are computed beside it: GEMV and
// tile kernels add in the same order.
//
// A panel is contiguous: N is padded to 16 with zero channels, K to the format's group with zeros.
// Panel p holds channels [16p, 16p+16):
//
//   bf16:        [K/2]          {[16 channels][2 k]} bf16
//   8-bit group: [K/32]         {[8 k4][16 channels][4 k]} int8                        512 bytes
//   4-bit group: [K/32]         {[4 k4][16 channels][4 bytes]}; byte b of k4 step s holds, in its
//                               low nibble, k = 4s + b and, in its high nibble, k = 16 + 4s + b
//                                                                                      256 bytes
//   int8, fp8:   [K/4]          {[16 channels][4 k]} int8 or e4m3, as the 8-bit groups
//   then, for the group formats, the scales of the panel, and then the minimums if it has any:
//     ScaleKind::f16     [K/group_size][16] f16
//     ScaleKind::f32     [groups][16] f32; int8 has one group, all of K
//     ScaleKind::nested  [K/group_size][16] int8 or uint8 multipliers, then [K/256][16] f16: the
//                        scale of a group is multiplier * super-scale (GGUF's K types, kept exact)
//   and the zero points, where each group has its own: [K/group_size][16] uint8, 0 to 16
//
// The weight that a stored quant q stands for is
//   output_scale * (scale * (factor(q) - zero_point) + minimum)
// where factor(q) is q, or the q-th entry of the format's codebook; zero_point is a constant of the
// format (8 for Q4_0) or belongs to the group; minimum is 0 unless has_minimum; and output_scale, a
// number per output channel that few weights have, is applied to the finished sum.
//
// fp8 (e4m3fn: no infinity, NaN where all bits but the sign are set) keeps the bytes of the
// checkpoint, NaN included; its weight is scale * value.
//
// Quants stay within the format's [min_quant, max_quant]; kernels rely on it to sum products in
// 16 bits. Only q8_0 and int8 are signed. Scales and minimums are finite: an infinite one would
// make NaN of the zeros that pad K. Padding is zero throughout: quants, scales, minimums and zero
// points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"

namespace tw::kernels {

inline constexpr int kTileN = 16;
inline constexpr int kSuperGroup = 256;  // weights along K that share a nested super-scale

enum class ScaleKind : uint8_t { none, f16, f32, nested };

// What a stored quant is: an integer (or an index into a codebook), or an 8-bit float.
enum class QuantKind : uint8_t { integer, e4m3 };

// What a 4-bit index stands for. The e2m1 floats (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives)
// are kept doubled and moved up by 12, so that they are unsigned integers with the zero point 12.
enum class Codebook : uint8_t { none, e2m1 };
struct CodebookTable {
  uint8_t factors[16];
};
inline constexpr int kE2m1ZeroPoint = 12;
inline constexpr int kE2m1MaxFactor = 24;

constexpr CodebookTable codebook_table(Codebook codebook) {
  switch (codebook) {
    case Codebook::none:
      return {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    case Codebook::e2m1:
      return {{12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}};
  }
  return {};
}

enum class WeightFormat : uint8_t {
  bf16,    // bf16, f16 and f32 sources
  q4_0,    // 4 bit, group 32, f16 scale, zero point 8                      GGUF Q4_0
  q4_1,    // 4 bit, group 32, f16 scale and minimum                        GGUF Q4_1
  q4_k,    // 4 bit, group 32, nested scale and minimum                     GGUF Q4_K
  q4_z,    // 4 bit, group 32, f16 scale, zero point of the group           AWQ, GPTQ
  fp4,     // e2m1, group 32, f16 scale                                     MXFP4
  fp4_16,  // e2m1, group 16, f16 scale                                     NVFP4
  q8_0,    // 8 bit, group 32, f16 scale                                    GGUF Q8_0, Q5_0
  q8_1,    // 8 bit (0..31), group 32, f16 scale and minimum                GGUF Q5_1
  q8_k,    // 8 bit (0..31), group 32, nested scale and minimum             GGUF Q5_K
  q8_k16,  // 8 bit (0..63), group 16, nested signed scale, zero point 32   GGUF Q6_K
  int8,    // 8 bit, f32 scale per channel                              W8A8 checkpoints
  fp8,     // e4m3, f32 scale per channel and 128 of K                  FP8 checkpoints
};
inline constexpr int kNumWeightFormats = 13;

struct WeightFormatTraits {
  const char* name;
  int bits;        // per stored quant; 16 for bf16
  int group_size;  // weights along K that share a scale; 0: all of them (int8), or no scale
  ScaleKind scale_kind;
  bool has_minimum;
  bool signed_multipliers;  // nested scales: int8 (Q6_K) instead of uint8
  int zero_point;           // 0 where groups have their own
  int min_quant;
  int max_quant;
  int k_alignment;  // K is padded to a multiple of this
  bool has_zero_points = false;
  Codebook codebook = Codebook::none;
  QuantKind quant_kind = QuantKind::integer;
};

constexpr WeightFormatTraits traits(WeightFormat format) {
  using enum WeightFormat;
  switch (format) {
    case bf16:
      return {"bf16", 16, 0, ScaleKind::none, false, false, 0, 0, 0, 32};
    case q4_0:
      return {"q4_0", 4, 32, ScaleKind::f16, false, false, 8, 0, 15, 32};
    case q4_1:
      return {"q4_1", 4, 32, ScaleKind::f16, true, false, 0, 0, 15, 32};
    case q4_k:
      return {"q4_k", 4, 32, ScaleKind::nested, true, false, 0, 0, 15, 256};
    case q4_z:
      return {"q4_z", 4, 32, ScaleKind::f16, false, false, 0, 0, 15, 32, true};
    case fp4:
      return {"fp4", 4,  32, ScaleKind::f16, false,         false, kE2m1ZeroPoint,
              0,     15, 32, false,          Codebook::e2m1};
    case fp4_16:
      return {"fp4_16", 4,  16, ScaleKind::f16, false,         false, kE2m1ZeroPoint,
              0,        15, 32, false,          Codebook::e2m1};
    case q8_0:
      return {"q8_0", 8, 32, ScaleKind::f16, false, false, 0, -128, 127, 32};
    case q8_1:
      return {"q8_1", 8, 32, ScaleKind::f16, true, false, 0, 0, 31, 32};
    case q8_k:
      return {"q8_k", 8, 32, ScaleKind::nested, true, false, 0, 0, 31, 256};
    case q8_k16:
      return {"q8_k16", 8, 16, ScaleKind::nested, false, true, 32, 0, 63, 256};
    case int8:
      return {"int8", 8, 0, ScaleKind::f32, false, false, 0, -128, 127, 64};
    case fp8:
      return {"fp8", 8,   128, ScaleKind::f32, false,          false,          0,
              -448,  448, 128, false,          Codebook::none, QuantKind::e4m3};
  }
  return {};
}

// Scales that a channel has, and which of them position k belongs to.
constexpr int64_t num_groups(const WeightFormatTraits& t, int64_t padded_k) {
  return t.group_size == 0 ? 1 : padded_k / t.group_size;
}
constexpr int64_t group_of(const WeightFormatTraits& t, int64_t k) {
  return t.group_size == 0 ? 0 : k / t.group_size;
}
constexpr bool starts_group(const WeightFormatTraits& t, int64_t k) {
  return t.group_size == 0 ? k == 0 : k % t.group_size == 0;
}

// int8 sums products over all of K in 32 bits: 128 * 127 * K stays below 2^31.
inline constexpr int64_t kMaxInt8Depth = ((int64_t{1} << 31) - 1) / (128 * 127);

inline constexpr WeightFormat kAllWeightFormats[kNumWeightFormats] = {
    WeightFormat::bf16, WeightFormat::q4_0, WeightFormat::q4_1,   WeightFormat::q4_k,
    WeightFormat::q4_z, WeightFormat::fp4,  WeightFormat::fp4_16, WeightFormat::q8_0,
    WeightFormat::q8_1, WeightFormat::q8_k, WeightFormat::q8_k16, WeightFormat::int8,
    WeightFormat::fp8};

// Where a weight lies inside its panel: byte offsets of channel c (0..15) at position k.
constexpr int64_t bf16_offset(int c, int64_t k) {
  return k / 2 * 64 + c * 4 + k % 2 * 2;
}
constexpr int64_t byte_quant_offset(int c, int64_t k) {
  return k / 4 * 64 + c * 4 + k % 4;
}
constexpr int64_t nibble_quant_offset(int c, int64_t k) {
  return k / 32 * 256 + k % 16 / 4 * 64 + c * 4 + k % 4;
}
constexpr bool is_high_nibble(int64_t k) {
  return k % 32 >= 16;
}

// Byte offsets inside one panel, derived from format and padded K.
struct PanelLayout {
  int64_t quants = 0;          // always offset 0
  int64_t scales = 0;          // f16 or f32 scales, or nested multipliers
  int64_t super_scales = 0;    // nested only
  int64_t minimums = 0;        // f16 minimums or nested multipliers
  int64_t super_minimums = 0;  // nested only; the minimum is multiplier * super-minimum, which
                               // is stored negated (GGUF subtracts), so that all formats add
  int64_t zero_points = 0;     // uint8, where groups have their own
  int64_t size = 0;            // bytes of a panel, a multiple of 64
};

PanelLayout panel_layout(WeightFormat format, int64_t padded_k);

// A weight matrix W[N, K] in one of the formats. Owns its memory, or is placed in a buffer that
// several weights share and that outlives them; move-only.
class PackedWeight {
 public:
  PackedWeight() = default;
  // Panels of zero bytes (padding need not be written). Fails when N or K is not positive, the size
  // overflows, or an int8 matrix is deeper than kMaxInt8Depth.
  static Expected<PackedWeight> allocate(WeightFormat format, int64_t n, int64_t k);
  // The same without memory, until place() gives it size_bytes() zero bytes, 64-byte aligned.
  static Expected<PackedWeight> describe(WeightFormat format, int64_t n, int64_t k);
  void place(std::byte* memory) { memory_ = memory; }

  WeightFormat format() const { return format_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t padded_k() const { return padded_k_; }
  int64_t num_panels() const { return (n_ + kTileN - 1) / kTileN; }
  const PanelLayout& layout() const { return layout_; }
  const std::byte* panel(int64_t index) const { return memory_ + index * layout_.size; }
  std::byte* panel(int64_t index) { return memory_ + index * layout_.size; }
  size_t size_bytes() const { return static_cast<size_t>(num_panels() * layout_.size); }
  bool empty() const { return n_ == 0; }

  // What the outputs are multiplied by: [N padded to whole panels], or empty for ones.
  std::span<const float> output_scales() const { return output_scales_; }
  // `scales`: [N], or empty.
  void set_output_scales(std::span<const float> scales);

 private:
  WeightFormat format_ = WeightFormat::bf16;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t padded_k_ = 0;
  PanelLayout layout_;
  Buffer data_;  // empty when placed elsewhere
  std::byte* memory_ = nullptr;
  std::vector<float> output_scales_;
};

}  // namespace tw::kernels
