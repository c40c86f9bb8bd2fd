// Where one output channel of a matrix goes while it is packed: its panel and its place in it.
// The layout is that of kernels/gemm/packed_weight.h; what is not written stays zero.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "kernels/gemm/packed_weight.h"

namespace tw {

struct ChannelWriter {
  std::byte* panel;
  int index;  // 0..15
  const kernels::PanelLayout& layout;
  bool& all_finite;     // cleared by a scale or minimum that is infinite or NaN
  float* output_scale;  // 1 before; null unless the matrix has_output_scales()

  void set_bf16(int64_t k, uint16_t bits) const {
    std::memcpy(panel + kernels::bf16_offset(index, k), &bits, sizeof(bits));
  }
  void set_quant8(int64_t k, int quant) const {
    panel[kernels::byte_quant_offset(index, k)] = static_cast<std::byte>(quant);
  }
  // Both nibbles of a byte: k (below 16 in its group of 32) and k + 16.
  void set_nibbles(int64_t k, std::byte nibbles) const {
    panel[kernels::nibble_quant_offset(index, k)] = nibbles;
  }
  // Scales and minimums of group `group` along K, as little-endian f16.
  void set_scale(int64_t group, const std::byte* f16) const { set_f16(layout.scales, group, f16); }
  void set_scale(int64_t group, f16_t scale) const {
    set_f16(layout.scales, group, reinterpret_cast<const std::byte*>(&scale.bits));
  }
  // Of formats with ScaleKind::f32.
  void set_scale(int64_t group, float scale) const {
    std::memcpy(panel + layout.scales + (group * kernels::kTileN + index) * 4, &scale, 4);
    if (!std::isfinite(scale)) all_finite = false;
  }
  void set_zero_point(int64_t group, int value) const {
    panel[layout.zero_points + group * kernels::kTileN + index] = static_cast<std::byte>(value);
  }
  void set_minimum(int64_t group, const std::byte* f16) const {
    set_f16(layout.minimums, group, f16);
  }
  void set_multiplier(int64_t group, int value) const {
    panel[layout.scales + group * kernels::kTileN + index] = static_cast<std::byte>(value);
  }
  void set_minimum_multiplier(int64_t group, int value) const {
    panel[layout.minimums + group * kernels::kTileN + index] = static_cast<std::byte>(value);
  }
  void set_super_scale(int64_t super_group, const std::byte* f16) const {
    set_f16(layout.super_scales, super_group, f16);
  }
  // GGUF subtracts the minimums, packed weights add them.
  void set_negated_super_minimum(int64_t super_group, const std::byte* f16) const {
    const std::byte negated[2] = {f16[0], f16[1] ^ std::byte{0x80}};
    set_f16(layout.super_minimums, super_group, negated);
  }

 private:
  void set_f16(int64_t begin, int64_t group, const std::byte* f16) const {
    std::memcpy(panel + begin + (group * kernels::kTileN + index) * 2, f16, 2);
    if ((f16[1] & std::byte{0x7c}) == std::byte{0x7c}) all_finite = false;
  }
};

}  // namespace tw
