// C[M, N] = A[M, K] * W[N, K]^T for quantized weights and q8 activations, AVX2.
//
// A panel's 16 channels are two vectors of 8 x 4 bytes of K. Four activations are broadcast to all
// lanes and vpmaddubsw multiplies them by the weights as unsigned bytes, giving two 16-bit sums per
// channel; how many of those may be added before they could overflow follows from the format's
// largest quant (8 steps of 4 for 4-bit quants: 15 * 127 * 2 * 8 = 30480). vpmaddwd by ones then
// joins the pairs in 32 bits. Zero points are taken off with the sums of the activations. q8_0's
// quants are signed: |w| is multiplied by the activations with w's sign. A codebook's factors are
// looked up by vpshufb.
//
// Few rows (kDirectRows): weights are unpacked in registers as they stream by; this is bound by
// memory, and several
// panels side by side keep more requests to it open. More rows: a block of a panel (kBlockGroups
// groups) is unpacked once into a buffer that stays in L1 and meets all rows, kBlockRows at a time;
// the fp32 sums of a row wait in memory from one block of K to the next. Both do the same fp32
// operations in the same order.
#include <immintrin.h>

#include "kernels/gemm/avx2.h"
#include "kernels/gemm/avx2_inline.h"

namespace tw::kernels::avx2 {
namespace {

constexpr int kGroup = 32;
constexpr int kSteps = kGroup / 4;  // of 4 k, 64 bytes as unpacked bytes
constexpr int kDirectRows = 4;
// Panels that stream side by side and how far ahead of each to ask: one stream of 2.4 GHz Xeon
// cores reached 55% of the read bandwidth, four with this distance 85% to 90%.
constexpr int kPanels = 4;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int kBlockGroups = 16;   // 8 KiB of unpacked quants
constexpr int64_t kMaxRows = 512;  // sums of 32 KiB
constexpr int64_t kMinRows = 64;
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

template <WeightFormat format>
struct Properties {
  static constexpr WeightFormatTraits t = traits(format);
  static constexpr bool is_signed = t.min_quant < 0;
  static constexpr bool is_packed = t.bits == 4;
  // Weight groups inside an activation group, and the steps of each.
  static constexpr int parts = kGroup / t.group_size;
  static constexpr int steps_per_part = kSteps / parts;
  static constexpr int max_factor = t.codebook == Codebook::e2m1 ? kE2m1MaxFactor : t.max_quant;
  // Steps whose products fit in 16 bits together.
  static constexpr int steps_per_sum = max_factor <= 15   ? 8
                                       : max_factor <= 31 ? 4
                                       : max_factor <= 63 ? 2
                                                          : 1;
  static_assert(is_signed || max_factor * 127 * 2 * steps_per_sum < 32768);
  // Rows that share the weights in registers: 2 sums each, the weights, and temporaries.
  static constexpr int block_rows = is_signed ? 4 : 6;
};

struct Quants {
  __m256i low;
  __m256i high;
};

// A part of a panel: `groups` groups of 32 along K. Scales are decoded from the packed form, or, in
// an unpacked block, read as floats [parts][16]; zero points likewise, as int32.
struct WeightBlock {
  const std::byte* quants;
  const std::byte* scales;
  const std::byte* super_scales;
  const std::byte* minimums;
  const std::byte* super_minimums;
  const std::byte* zero_points;
  int64_t groups;
};

struct UnpackBuffer {
  alignas(64) std::byte quants[kBlockGroups * kGroup * kTileN];
  alignas(64) float scales[kBlockGroups * 2 * kTileN];
  alignas(64) float minimums[kBlockGroups * kTileN];
  alignas(64) int32_t zero_points[kBlockGroups * kTileN];
};

// The unsigned (or, for q8_0, signed) bytes of step `step` of a group.
template <WeightFormat format, bool packed>
inline Quants load_step(const std::byte* group, int step) {
  if constexpr (packed) {
    const auto* from = reinterpret_cast<const __m256i*>(group + step % 4 * 64);
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low = _mm256_loadu_si256(from);
    __m256i high = _mm256_loadu_si256(from + 1);
    if (step >= 4) {
      low = _mm256_srli_epi16(low, 4);
      high = _mm256_srli_epi16(high, 4);
    }
    low = _mm256_and_si256(low, mask);
    high = _mm256_and_si256(high, mask);
    if constexpr (traits(format).codebook != Codebook::none) {
      const __m256i codebook = codebook_vector<format>();
      return {_mm256_shuffle_epi8(codebook, low), _mm256_shuffle_epi8(codebook, high)};
    }
    return {low, high};
  } else {
    const auto* from = reinterpret_cast<const __m256i*>(group + step * 64);
    return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
  }
}

inline __m256i broadcast4(const std::byte* from) {
  return _mm256_broadcastd_epi32(_mm_loadu_si32(from));
}

// Sums of products of one part of a group, 32 bits, before the zero point is taken off.
template <WeightFormat format, int rows, bool packed>
inline void multiply_part(const std::byte* group, int first_step, const std::byte* a,
                          int64_t stride, Quants (&sums)[rows]) {
  using P = Properties<format>;
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int begin = 0; begin < P::steps_per_part; begin += P::steps_per_sum) {
    Quants pairs[rows];
#pragma GCC unroll 8
    for (int i = 0; i < P::steps_per_sum; ++i) {
      // Low and high nibbles of the same bytes follow each other.
      const int at = begin + i;
      const int step = first_step + (packed && P::parts == 1 ? at / 2 + at % 2 * 4 : at);
      const Quants w = load_step<format, packed>(group, step);
      Quants magnitudes = w;
      if constexpr (P::is_signed) {
        magnitudes = {_mm256_abs_epi8(w.low), _mm256_abs_epi8(w.high)};
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const __m256i x = broadcast4(a + r * stride + 4 * step);
        Quants products;
        if constexpr (P::is_signed) {
          products = {_mm256_maddubs_epi16(magnitudes.low, _mm256_sign_epi8(x, w.low)),
                      _mm256_maddubs_epi16(magnitudes.high, _mm256_sign_epi8(x, w.high))};
        } else {
          products = {_mm256_maddubs_epi16(w.low, x), _mm256_maddubs_epi16(w.high, x)};
        }
        pairs[r] = i == 0 ? products
                          : Quants{_mm256_add_epi16(pairs[r].low, products.low),
                                   _mm256_add_epi16(pairs[r].high, products.high)};
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const Quants joined = {_mm256_madd_epi16(pairs[r].low, ones),
                             _mm256_madd_epi16(pairs[r].high, ones)};
      sums[r] = begin == 0 ? joined
                           : Quants{_mm256_add_epi32(sums[r].low, joined.low),
                                    _mm256_add_epi32(sums[r].high, joined.high)};
    }
  }
}

// Zero points of weight group `index` as 32-bit numbers; nothing where the format's is a constant.
template <WeightFormat format, bool unpacked>
inline Quants load_zero_points(const WeightBlock& block, int64_t index) {
  if constexpr (!traits(format).has_zero_points) {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  } else if constexpr (unpacked) {
    const auto* from = reinterpret_cast<const __m256i*>(block.zero_points + index * (4 * kTileN));
    return {_mm256_load_si256(from), _mm256_load_si256(from + 1)};
  } else {
    const __m128i bytes =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.zero_points + index * kTileN));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))};
  }
}

// Takes off zero_point * (sum of the activations). A group's own zero points are multiplied by
// vpmaddwd: both factors fit in 16 bits, and the upper halves of the zero points are 0.
template <WeightFormat format>
inline Quants without_zero_point(Quants sum, const ActivationGroup& group, int part,
                                 const Quants& zero_points) {
  using P = Properties<format>;
  int32_t a_sum = group.sum;
  if constexpr (P::parts == 2) {
    a_sum = part == 0 ? group.first_half_sum : group.sum - group.first_half_sum;
  }
  Quants offset;
  if constexpr (P::t.has_zero_points) {
    const __m256i a = _mm256_set1_epi32(a_sum);
    offset = {_mm256_madd_epi16(zero_points.low, a), _mm256_madd_epi16(zero_points.high, a)};
  } else if constexpr (P::t.zero_point != 0) {
    offset.low = offset.high = _mm256_set1_epi32(a_sum * P::t.zero_point);
  } else {
    return sum;
  }
  return {_mm256_sub_epi32(sum.low, offset.low), _mm256_sub_epi32(sum.high, offset.high)};
}

// sums[rows] += products of group g of a block. `unpacked`: the block lies in an UnpackBuffer.
template <WeightFormat format, int rows, bool unpacked>
inline void multiply_group(const WeightBlock& block, int64_t g, const std::byte* a, int64_t stride,
                           const ActivationGroup* groups, int64_t groups_stride,
                           Channels (&sums)[rows]) {
  using P = Properties<format>;
  constexpr bool packed = P::is_packed && !unpacked;
  constexpr int64_t group_bytes = packed ? 256 : 512;
#pragma GCC unroll 2
  for (int part = 0; part < P::parts; ++part) {
    Quants products[rows];
    multiply_part<format, rows, packed>(block.quants + g * group_bytes, part * P::steps_per_part,
                                        a + g * kGroup, stride, products);
    const int64_t index = g * P::parts + part;
    const Channels scales =
        unpacked ? load_channels(reinterpret_cast<const float*>(block.scales) + index * kTileN)
                 : load_group_values<format>(block.scales, block.super_scales, index);
    const Quants zero_points = load_zero_points<format, unpacked>(block, index);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const ActivationGroup& group = groups[r * groups_stride + g];
      const Quants exact = without_zero_point<format>(products[r], group, part, zero_points);
      const __m256 a_scale = _mm256_broadcast_ss(&group.scale);
      sums[r].low = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact.low),
                                    _mm256_mul_ps(scales.low, a_scale), sums[r].low);
      sums[r].high = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact.high),
                                     _mm256_mul_ps(scales.high, a_scale), sums[r].high);
    }
  }
  if constexpr (P::t.has_minimum) {
    const Channels minimums =
        unpacked ? load_channels(reinterpret_cast<const float*>(block.minimums) + g * kTileN)
                 : load_group_values<format>(block.minimums, block.super_minimums, g);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const __m256 scaled_sum = _mm256_broadcast_ss(&groups[r * groups_stride + g].scaled_sum);
      sums[r].low = _mm256_fmadd_ps(minimums.low, scaled_sum, sums[r].low);
      sums[r].high = _mm256_fmadd_ps(minimums.high, scaled_sum, sums[r].high);
    }
  }
}

// acc[rows][16] += products of an unpacked block.
template <WeightFormat format, int rows>
inline void multiply_block(const WeightBlock& block, const std::byte* a, int64_t stride,
                           const ActivationGroup* groups, int64_t groups_stride, float* acc) {
  Channels sums[rows];
  for (int r = 0; r < rows; ++r) sums[r] = load_channels(acc + r * kTileN);
  for (int64_t g = 0; g < block.groups; ++g) {
    multiply_group<format, rows, true>(block, g, a, stride, groups, groups_stride, sums);
  }
  for (int r = 0; r < rows; ++r) store_channels(acc + r * kTileN, sums[r]);
}

template <WeightFormat format>
inline WeightBlock whole_panel(const GemmTask& task, int64_t panel) {
  const std::byte* base = task.panels + panel * task.panel_size;
  return {base,
          base + task.layout.scales,
          base + task.layout.super_scales,
          base + task.layout.minimums,
          base + task.layout.super_minimums,
          base + task.layout.zero_points,
          task.padded_k / kGroup};
}

// Groups [begin, begin + count) of a panel with bytes for quants and floats for scales.
template <WeightFormat format>
inline WeightBlock unpack_block(const WeightBlock& panel, int64_t begin, int64_t count,
                                UnpackBuffer& buffer) {
  using P = Properties<format>;
  constexpr int64_t group_bytes = P::is_packed ? 256 : 512;
  WeightBlock block = {};
  block.groups = count;
  // The block behind this one arrives while this one is multiplied.
  for (int64_t line = 0; line < count * group_bytes; line += 64) {
    const std::byte* next = panel.quants + (begin + count) * group_bytes;
    _mm_prefetch(reinterpret_cast<const char*>(next + line), _MM_HINT_T1);
  }
  if constexpr (P::is_packed) {
    for (int64_t g = 0; g < count; ++g) {
      auto* out = reinterpret_cast<__m256i*>(buffer.quants + g * (kGroup * kTileN));
#pragma GCC unroll 8
      for (int step = 0; step < kSteps; ++step) {
        const Quants w = load_step<format, true>(panel.quants + (begin + g) * group_bytes, step);
        _mm256_store_si256(out + 2 * step, w.low);
        _mm256_store_si256(out + 2 * step + 1, w.high);
      }
    }
    block.quants = buffer.quants;
  } else {
    block.quants = panel.quants + begin * group_bytes;
  }
  for (int64_t i = 0; i < count * P::parts; ++i) {
    store_channels(
        buffer.scales + i * kTileN,
        load_group_values<format>(panel.scales, panel.super_scales, begin * P::parts + i));
  }
  block.scales = reinterpret_cast<const std::byte*>(buffer.scales);
  if constexpr (P::t.has_minimum) {
    for (int64_t i = 0; i < count; ++i) {
      store_channels(buffer.minimums + i * kTileN,
                     load_group_values<format>(panel.minimums, panel.super_minimums, begin + i));
    }
    block.minimums = reinterpret_cast<const std::byte*>(buffer.minimums);
  }
  if constexpr (P::t.has_zero_points) {
    static_assert(P::parts == 1);
    for (int64_t i = 0; i < count; ++i) {
      const Quants zero_points = load_zero_points<format, false>(panel, begin + i);
      auto* out = reinterpret_cast<__m256i*>(buffer.zero_points + i * kTileN);
      _mm256_store_si256(out, zero_points.low);
      _mm256_store_si256(out + 1, zero_points.high);
    }
    block.zero_points = reinterpret_cast<const std::byte*>(buffer.zero_points);
  }
  return block;
}

// `panels` adjacent panels times `rows` rows, all of K, a group of each panel at a time.
template <WeightFormat format, int rows, int panels>
inline void multiply_panels(const GemmTask& task, int64_t panel) {
  using P = Properties<format>;
  constexpr int64_t group_bytes = P::is_packed ? 256 : 512;
  WeightBlock blocks[panels];
  Channels sums[panels][rows];
  for (int p = 0; p < panels; ++p) {
    blocks[p] = whole_panel<format>(task, panel + p);
    for (int r = 0; r < rows; ++r) sums[p][r] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  const int64_t count = task.padded_k / kGroup;
  for (int64_t g = 0; g < count; ++g) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const std::byte* group = blocks[p].quants + g * group_bytes;
#pragma GCC unroll 8
      for (int64_t line = 0; line < group_bytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(group + kPrefetchBytes + line), _MM_HINT_T0);
      }
      multiply_group<format, rows, false>(blocks[p], g, task.a, task.a_stride, task.groups,
                                          task.groups_stride, sums[p]);
    }
  }
  for (int p = 0; p < panels; ++p) {
    for (int r = 0; r < rows; ++r) finish_row(task, r, panel + p, sums[p][r]);
  }
}

template <WeightFormat format, int rows, int panels>
void direct_panels(const GemmTask& task) {
  int64_t panel = task.panel_begin;
  for (; panel + panels <= task.panel_end; panel += panels) {
    multiply_panels<format, rows, panels>(task, panel);
  }
  for (; panel < task.panel_end; ++panel) multiply_panels<format, rows, 1>(task, panel);
}

// Rows [begin, end) of an unpacked block, `rows` at a time, then the rest with fewer.
template <WeightFormat format, int rows>
inline void multiply_rows(const GemmTask& task, const WeightBlock& block, int64_t first_group,
                          int64_t begin, int64_t end, float* acc) {
  int64_t m = begin;
  for (; m + rows <= end; m += rows) {
    multiply_block<format, rows>(block, task.a + m * task.a_stride + first_group * kGroup,
                                 task.a_stride, task.groups + m * task.groups_stride + first_group,
                                 task.groups_stride, acc + (m - begin) * kTileN);
  }
  if constexpr (rows > 1) {
    if (m < end) {
      multiply_rows<format, (rows > 2 ? rows / 2 : 1)>(task, block, first_group, m, end,
                                                       acc + (m - begin) * kTileN);
    }
  }
}

template <WeightFormat format>
void blocked_panels(const GemmTask& task) {
  using P = Properties<format>;
  UnpackBuffer buffer;
  alignas(64) float acc[kMaxRows * kTileN];
  int64_t rows_per_block = kActivationBytes / task.padded_k;
  rows_per_block = rows_per_block < kMinRows   ? kMinRows
                   : rows_per_block > kMaxRows ? kMaxRows
                                               : rows_per_block;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    for (int64_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
      const WeightBlock whole = whole_panel<format>(task, panel);
      for (int64_t i = 0; i < (end - begin) * kTileN; ++i) acc[i] = 0.0f;
      for (int64_t g = 0; g < whole.groups; g += kBlockGroups) {
        const int64_t count = whole.groups - g < kBlockGroups ? whole.groups - g : kBlockGroups;
        const WeightBlock block = unpack_block<format>(whole, g, count, buffer);
        multiply_rows<format, P::block_rows>(task, block, g, begin, end, acc);
      }
      for (int64_t m = begin; m < end; ++m) {
        finish_row(task, m, panel, load_channels(acc + (m - begin) * kTileN));
      }
    }
  }
}

template <WeightFormat format>
void run(const GemmTask& task) {
  static_assert(kDirectRows == 4);
  switch (task.m) {
    case 0:
      return;
    case 1:
      return direct_panels<format, 1, kPanels>(task);
    case 2:
      return direct_panels<format, 2, kPanels>(task);
    case 3:
      return direct_panels<format, 3, 2>(task);
    case 4:
      return direct_panels<format, 4, 2>(task);
    default:
      return blocked_panels<format>(task);
  }
}

}  // namespace

using enum WeightFormat;
template <>
void gemm_q8<q4_0>(const GemmTask& task) {
  run<q4_0>(task);
}
template <>
void gemm_q8<q4_1>(const GemmTask& task) {
  run<q4_1>(task);
}
template <>
void gemm_q8<q4_k>(const GemmTask& task) {
  run<q4_k>(task);
}
template <>
void gemm_q8<q4_z>(const GemmTask& task) {
  run<q4_z>(task);
}
template <>
void gemm_q8<fp4>(const GemmTask& task) {
  run<fp4>(task);
}
template <>
void gemm_q8<fp4_16>(const GemmTask& task) {
  run<fp4_16>(task);
}
template <>
void gemm_q8<q8_0>(const GemmTask& task) {
  run<q8_0>(task);
}
template <>
void gemm_q8<q8_1>(const GemmTask& task) {
  run<q8_1>(task);
}
template <>
void gemm_q8<q8_k>(const GemmTask& task) {
  run<q8_k>(task);
}
template <>
void gemm_q8<q8_k16>(const GemmTask& task) {
  run<q8_k16>(task);
}

}  // namespace tw::kernels::avx2
