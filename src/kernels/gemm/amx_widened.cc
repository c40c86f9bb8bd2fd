// C[M, N] = A[M, K] * W[N, K]^T for quantized weights and bf16 activations, AMX-BF16: for prompts.
//
// A group's scales allow a tile multiplication no more than 32 of K before its sums must leave the
// tiles (amx_q8.cc), which costs several times what the multiplication does. So weights are widened
// to bf16, scales and minimums included: fma(scale, factor - zero_point, minimum) in fp32, rounded
// to nearest even. That is done once for up to 512 rows, whose sums then stay in tiles
// (amx_matrix.h). Output scales are applied to the finished sums.
//
// 32 weights at a time, a row of a B tile: a byte shuffle brings each lane the byte of its channel
// and k; a lane then is an index into a table of 16 factors (4 bits), or q * 2^24 as an integer
// (8 bits). Scales lie in the same order of lanes, channels 0 0 1 1 ... 7 7 and 8 8 ... 15 15.
#include <immintrin.h>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_matrix.h"

namespace tw::kernels::amx {
namespace {

constexpr int kGroup = 32;                              // of K, a B tile
constexpr int64_t kWidenedGroup = kGroup * kTileN * 2;  // bytes

// Per half of a tile's row (8 channels): 16 lanes.
struct Halves {
  __m512 low;
  __m512 high;
};

// From 16 channels x 4 k bytes: position (channel, k) of each lane of a tile's row of two k, in all
// of its bytes. [pair of k][half]
struct LaneOrder {
  alignas(64) uint8_t bytes[2][2][64];
};

constexpr LaneOrder lane_order() {
  LaneOrder order = {};
  for (int pair = 0; pair < 2; ++pair) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 64; ++i) {
        const int lane = i / 4;
        const int channel = 8 * half + lane / 2;
        order.bytes[pair][half][i] = static_cast<uint8_t>(4 * channel + 2 * pair + lane % 2);
      }
    }
  }
  return order;
}

constexpr LaneOrder kLaneOrder = lane_order();

struct FactorTable {
  alignas(64) float factors[16];
};

template <WeightFormat format>
constexpr FactorTable factor_table() {
  const CodebookTable codebook = codebook_table(traits(format).codebook);
  FactorTable table = {};
  for (int i = 0; i < 16; ++i) {
    table.factors[i] = static_cast<float>(codebook.factors[i] - traits(format).zero_point);
  }
  return table;
}

template <WeightFormat format>
constexpr FactorTable kFactors = factor_table<format>();

// Each channel's value for both of its lanes.
inline Halves twice(__m512 channels) {
  const __m512i order = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __m512i behind = _mm512_add_epi32(order, _mm512_set1_epi32(8));
  return {_mm512_permutexvar_ps(order, channels), _mm512_permutexvar_ps(behind, channels)};
}

template <WeightFormat format>
class Widener {
 public:
  static constexpr WeightFormatTraits t = traits(format);
  static constexpr int parts = kGroup / t.group_size;  // with scales of their own
  static constexpr int64_t group_bytes = kGroup * kTileN * t.bits / 8;
  static constexpr bool has_offset =
      t.has_minimum || t.has_zero_points || (t.bits == 8 && t.zero_point != 0);

  Widener() : table_(_mm512_load_ps(kFactors<format>.factors)) {
    for (int pair = 0; pair < 2; ++pair) {
      for (int half = 0; half < 2; ++half) {
        order_[pair][half] = _mm512_load_si512(kLaneOrder.bytes[pair][half]);
      }
    }
  }

  // Group `index` of a panel as a B tile.
  void widen(const std::byte* panel, const PanelLayout& layout, int64_t index,
             std::byte* out) const {
    Part part[parts];
    for (int i = 0; i < parts; ++i) part[i] = load_part(panel, layout, index * parts + i);
    const std::byte* group = panel + index * group_bytes;
    if constexpr (t.bits == 4) {
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) {
        const __m512i bytes = _mm512_loadu_si512(group + 64 * step);
        widen_step(bytes, part[0], out + 128 * step);
        widen_step(_mm512_srli_epi16(bytes, 4), part[parts - 1], out + 128 * (step + 4));
      }
    } else {
#pragma GCC unroll 8
      for (int step = 0; step < 8; ++step) {
        widen_step(_mm512_loadu_si512(group + 64 * step), part[step * parts / 8], out + 128 * step);
      }
    }
  }

 private:
  struct Part {
    Halves scales;
    Halves offsets;
  };

  static Part load_part(const std::byte* panel, const PanelLayout& layout, int64_t index) {
    __m512 scales =
        load_group_values<format>(panel + layout.scales, panel + layout.super_scales, index);
    __m512 offsets = _mm512_setzero_ps();
    if constexpr (t.has_minimum) {
      offsets =
          load_group_values<format>(panel + layout.minimums, panel + layout.super_minimums, index);
    } else if constexpr (t.has_zero_points) {
      const auto* points = reinterpret_cast<const __m128i*>(panel + layout.zero_points);
      const __m512i zero_points = _mm512_cvtepu8_epi32(_mm_loadu_si128(points + index));
      // Exact, as is a product with a quant: both have few bits.
      offsets = _mm512_mul_ps(
          scales, _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), zero_points)));
    } else if constexpr (has_offset) {
      offsets = _mm512_mul_ps(scales, _mm512_set1_ps(-static_cast<float>(t.zero_point)));
    }
    if constexpr (t.bits == 8) scales = _mm512_mul_ps(scales, _mm512_set1_ps(0x1p-24f));
    return {twice(scales), twice(offsets)};
  }

  // 16 channels x 4 k -> two rows of a tile. Of 4-bit quants the low half of each byte counts.
  void widen_step(__m512i bytes, const Part& part, std::byte* out) const {
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      const __m512 low = weights(bytes, order_[pair][0], part.scales.low, part.offsets.low);
      const __m512 high = weights(bytes, order_[pair][1], part.scales.high, part.offsets.high);
      _mm512_store_si512(out + 64 * pair,
                         reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }

  __m512 weights(__m512i bytes, __m512i order, __m512 scales, __m512 offsets) const {
    __m512 factors;
    if constexpr (t.bits == 4) {
      // The look-up reads the lowest four bits of a lane only.
      factors = _mm512_permutexvar_ps(_mm512_permutexvar_epi8(order, bytes), table_);
    } else {
      constexpr __mmask64 kTopBytes = 0x8888888888888888u;
      factors = _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(kTopBytes, order, bytes));
    }
    if constexpr (has_offset) return _mm512_fmadd_ps(factors, scales, offsets);
    return _mm512_mul_ps(factors, scales);
  }

  __m512 table_;
  __m512i order_[2][2];
};

template <WeightFormat format>
struct MultiplyWidened : TileBf16 {
  static constexpr bool widens = true;

  static void widen(const GemmTask& task, int64_t panel, int64_t begin, int64_t end,
                    std::byte* out) {
    using W = Widener<format>;
    const W widener;
    const std::byte* base = task.panels + panel * task.panel_size;
    const std::byte* next = base + kBlockPanels * task.panel_size;  // widened after these
    const PanelLayout layout = task.layout;
    for (int64_t group = begin / kTileBytes; group < end / kTileBytes; ++group) {
#pragma GCC unroll 8
      for (int64_t line = 0; line < W::group_bytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(next + group * W::group_bytes + line),
                     _MM_HINT_T1);
      }
      widener.widen(base, layout, group, out);
      out += kWidenedGroup;
    }
  }
};

}  // namespace

using enum WeightFormat;
template <>
void gemm_widened<q4_0>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q4_0>>(task);
}
template <>
void gemm_widened<q4_1>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q4_1>>(task);
}
template <>
void gemm_widened<q4_k>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q4_k>>(task);
}
template <>
void gemm_widened<q4_z>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q4_z>>(task);
}
template <>
void gemm_widened<fp4>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<fp4>>(task);
}
template <>
void gemm_widened<fp4_16>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<fp4_16>>(task);
}
template <>
void gemm_widened<q8_0>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q8_0>>(task);
}
template <>
void gemm_widened<q8_1>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q8_1>>(task);
}
template <>
void gemm_widened<q8_k>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q8_k>>(task);
}
template <>
void gemm_widened<q8_k16>(const GemmTask& task) {
  multiply_matrix<MultiplyWidened<q8_k16>>(task);
}

}  // namespace tw::kernels::amx
