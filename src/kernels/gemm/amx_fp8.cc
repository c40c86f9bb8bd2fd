// C[M, N] = A[M, K] * W[N, K]^T for fp8 weights and bf16 activations, AMX-BF16.
//
// A group's scale would take its sums out of the tiles after every four multiplications, at several
// times their cost. So weights are widened to bf16 with their scales in them (amx_matrix.h), and
// relative to the largest scale of their channel, which the finished sums meet. e4m3 is exact in
// bf16: where a channel has one scale, or scales that are powers of two apart, nothing is rounded;
// elsewhere a weight is, to nearest even.
//
// 64 weights at a time: a byte shuffle brings k 0, 1 of four channels before their k 2, 3; two
// look-ups among 128 bytes (VBMI) give the high and the low byte of the bf16 of a magnitude; the
// sign is flipped in, and unpacking makes two rows of a tile. The channels of a panel usually share
// their relative scales (blocks of 128 x 128, or one scale a channel): these scale the table. If
// they do not, the widened weights are multiplied.
#include <immintrin.h>

#include "core/dtype.h"
#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_matrix.h"

namespace tw::kernels::amx {
namespace {

constexpr int kGroup = traits(WeightFormat::fp8).group_size;
constexpr int64_t kGroupBytes = kGroup * kTileN;
constexpr int64_t kWidenedGroup = 2 * kGroupBytes;

// Every e4m3 without its sign.
struct Magnitudes {
  alignas(64) float values[128];
};

constexpr Magnitudes magnitudes() {
  Magnitudes table = {};
  for (int i = 0; i < 128; ++i) table.values[i] = to_float(f8_e4m3_t{static_cast<uint8_t>(i)});
  return table;
}

constexpr Magnitudes kMagnitudes = magnitudes();

// Indices of the even or odd bytes of 128, of the words of two vectors in turns, and of the bytes
// of 16 channels x 4 k in the order that unpacking wants.
struct Orders {
  alignas(64) uint8_t even_bytes[64];
  alignas(64) uint8_t odd_bytes[64];
  alignas(64) uint16_t interleaved[32];
  alignas(64) uint8_t pairs[64];
};

constexpr Orders orders() {
  Orders order = {};
  for (int i = 0; i < 64; ++i) {
    order.even_bytes[i] = static_cast<uint8_t>(2 * i);
    order.odd_bytes[i] = static_cast<uint8_t>(2 * i + 1);
    const int pair = i / 8 % 2, channel = i / 16 * 4 + i % 8 / 2;
    order.pairs[i] = static_cast<uint8_t>(4 * channel + 2 * pair + i % 2);
  }
  for (int i = 0; i < 32; ++i) {
    order.interleaved[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  }
  return order;
}

constexpr Orders kOrders = orders();

// The bf16 of every magnitude times a scale.
struct WordTable {
  __m512i high[2];
  __m512i low[2];

  static WordTable make(float scale) {
    const __m512i even = _mm512_load_si512(kOrders.even_bytes);
    const __m512i odd = _mm512_load_si512(kOrders.odd_bytes);
    const __m512 factor = _mm512_set1_ps(scale);
    WordTable table;
    for (int half = 0; half < 2; ++half) {
      __m512i words[2];
      for (int i = 0; i < 2; ++i) {
        const float* from = kMagnitudes.values + 64 * half + 32 * i;
        words[i] = reinterpret_cast<__m512i>(
            _mm512_cvtne2ps_pbh(_mm512_mul_ps(_mm512_load_ps(from + 16), factor),
                                _mm512_mul_ps(_mm512_load_ps(from), factor)));
      }
      table.low[half] = _mm512_permutex2var_epi8(words[0], even, words[1]);
      table.high[half] = _mm512_permutex2var_epi8(words[0], odd, words[1]);
    }
    return table;
  }
};

// A group of a panel -> four B tiles; asks for `next`, the group to be widened after these panels.
inline void widen_group(const std::byte* group, const std::byte* next, const WordTable& table,
                        std::byte* out) {
  const __m512i pairs = _mm512_load_si512(kOrders.pairs);
  const __m512i sign = _mm512_set1_epi8(-128);
  constexpr int kFirstXorBothOthers = 0x78;
  constexpr int64_t kTrip = 512;
  for (int64_t left = kGroupBytes; left > 0; left -= kTrip) {
#pragma GCC unroll 8
    for (int64_t at = 0; at < kTrip; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(next + at), _MM_HINT_T1);
      const __m512i bytes = _mm512_permutexvar_epi8(pairs, _mm512_loadu_si512(group + at));
      const __m512i magnitude = _mm512_permutex2var_epi8(table.high[0], bytes, table.high[1]);
      const __m512i high = _mm512_ternarylogic_epi32(magnitude, bytes, sign, kFirstXorBothOthers);
      const __m512i low = _mm512_permutex2var_epi8(table.low[0], bytes, table.low[1]);
      _mm512_store_si512(out + 2 * at, _mm512_unpacklo_epi8(low, high));
      _mm512_store_si512(out + 2 * at + 64, _mm512_unpackhi_epi8(low, high));
    }
    group += kTrip;
    next += kTrip;
    out += 2 * kTrip;
  }
}

// Multiplies a widened group by a number per channel.
inline void scale_group(std::byte* tiles, __m512 scales) {
  const __m512i order = _mm512_load_si512(kOrders.interleaved);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (std::byte* row = tiles; row < tiles + kWidenedGroup; row += 64) {
    const __m512i words = _mm512_load_si512(row);
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(words, upper));
    const auto scaled = reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_mul_ps(odd, scales), _mm512_mul_ps(even, scales)));
    _mm512_store_si512(row, _mm512_permutexvar_epi16(order, scaled));
  }
}

// The scales of a panel: each channel's largest magnitude, and those of its groups in units of it.
class PanelScales {
 public:
  PanelScales(const GemmTask& task, int64_t panel)
      : scales_(task.panels + panel * task.panel_size + task.layout.scales),
        largest_(_mm512_setzero_ps()) {
    for (int64_t group = 0; group < task.padded_k / kGroup; ++group) {
      largest_ = _mm512_max_ps(largest_, _mm512_abs_ps(load(group)));
    }
  }

  __m512 largest() const { return largest_; }
  __m512 relative(int64_t group) const {
    const __mmask16 not_zero = _mm512_cmp_ps_mask(largest_, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    return _mm512_maskz_div_ps(not_zero, load(group), largest_);
  }

 private:
  __m512 load(int64_t group) const {
    return load_group_values<WeightFormat::fp8>(scales_, nullptr, group);
  }

  const std::byte* scales_;
  __m512 largest_;
};

struct MultiplyFp8 : TileBf16 {
  static constexpr bool widens = true;
  static constexpr bool stores_sums = false;

  static void widen(const GemmTask& task, int64_t panel, int64_t begin, int64_t end,
                    std::byte* out) {
    const std::byte* quants = task.panels + panel * task.panel_size;
    const std::byte* next = quants + kBlockPanels * task.panel_size;
    const int64_t channels = task.n - panel * kTileN;
    const auto mask = static_cast<__mmask16>(channels < kTileN ? (1 << channels) - 1 : 0xffff);
    const PanelScales scales(task, panel);
    for (int64_t group = begin / (2 * kGroup); group < end / (2 * kGroup); ++group) {
      const __m512 relative = scales.relative(group);
      const float first = _mm512_cvtss_f32(relative);
      const bool is_shared =
          _mm512_mask_cmp_ps_mask(mask, relative, _mm512_set1_ps(first), _CMP_NEQ_OQ) == 0;
      const WordTable table = WordTable::make(is_shared ? first : 1.0f);
      widen_group(quants + group * kGroupBytes, next + group * kGroupBytes, table, out);
      if (!is_shared) scale_group(out, relative);
      out += kWidenedGroup;
    }
  }

  template <int panels>
  static void finish(const GemmTask& task, int64_t panel, int64_t begin, int64_t end,
                     const float* sums) {
    __m512 scales[panels];
    for (int p = 0; p < panels; ++p) scales[p] = PanelScales(task, panel + p).largest();
    avx512::finish_rows<panels>(task, panel, begin, end, [&](int64_t row, int p) {
      return _mm512_mul_ps(_mm512_load_ps(sums + (row * panels + p) * kTileN), scales[p]);
    });
  }
};

}  // namespace

void gemm_fp8(const GemmTask& task) {
  multiply_matrix<MultiplyFp8>(task);
}

}  // namespace tw::kernels::amx
