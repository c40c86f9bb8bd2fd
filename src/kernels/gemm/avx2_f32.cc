// C[M, N] = A[M, K] * W[N, K]^T for fp32 activations, AVX2 and FMA.
//
// For bf16 weights this is the fast path; for quantized ones, which are expanded to fp32, the exact
// one. A bf16 weight becomes fp32 by a shift (even k) or a mask (odd k) of the 32-bit lane that
// holds two of them.
//
// Few rows of bf16 weights are multiplied as the weights stream by. A sum is one chain of FMAs in
// order of k, so several panels run side by side to fill the FMA pipes: rows x panels x 2 vectors
// should reach latency x throughput = 4 x 2 = 8. Otherwise a block of a panel is expanded once into
// a buffer that stays in L1 and meets all rows, six at a time (12 sums, 2 weights, 1 activation in
// 16 registers).
#include <immintrin.h>

#include "kernels/gemm/avx2.h"
#include "kernels/gemm/avx2_inline.h"

namespace tw::kernels::avx2 {
namespace {

constexpr int kBlockRows = 6;
constexpr int64_t kBlockDepth = 256;      // 16 KiB of expanded weights; one super-group
constexpr int64_t kPrefetchBytes = 4096;  // ahead of each panel that streams by
constexpr int64_t kMaxRows = 512;
constexpr int64_t kMinRows = 48;
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

struct ExpandedBlock {
  alignas(64) float weights[kBlockDepth * kTileN];  // [k][16]
};

// Two positions of K of 8 channels.
struct Pair {
  __m256 even;
  __m256 odd;
};

inline Pair expand_bf16(const std::byte* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
          _mm256_castsi256_ps(
              _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
}

// `panels` adjacent panels times `rows` rows, all of K.
template <int rows, int panels>
inline void multiply_bf16(const GemmTask& task, int64_t panel) {
  const std::byte* weights = task.panels + panel * task.panel_size;
  const float* a = reinterpret_cast<const float*>(task.a);
  Channels sums[rows][panels];
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < panels; ++p) sums[r][p] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  for (int64_t k = 0; k < task.padded_k; k += 2) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const std::byte* at = weights + p * task.panel_size + k * 32;
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
      const Pair low = expand_bf16(at);
      const Pair high = expand_bf16(at + 32);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const __m256 x0 = _mm256_broadcast_ss(a + r * task.a_stride + k);
        const __m256 x1 = _mm256_broadcast_ss(a + r * task.a_stride + k + 1);
        Channels& sum = sums[r][p];
        sum.low = _mm256_fmadd_ps(low.even, x0, sum.low);
        sum.high = _mm256_fmadd_ps(high.even, x0, sum.high);
        sum.low = _mm256_fmadd_ps(low.odd, x1, sum.low);
        sum.high = _mm256_fmadd_ps(high.odd, x1, sum.high);
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < panels; ++p) finish_row(task, r, panel + p, sums[r][p]);
  }
}

template <int rows, int panels>
void direct_panels(const GemmTask& task) {
  int64_t panel = task.panel_begin;
  for (; panel + panels <= task.panel_end; panel += panels) {
    multiply_bf16<rows, panels>(task, panel);
  }
  for (; panel < task.panel_end; ++panel) multiply_bf16<rows, 1>(task, panel);
}

// Bytes of 16 channels in 32 bits.
struct Integers {
  __m256i low;
  __m256i high;
};

inline Integers expand_bytes(__m128i bytes, bool is_signed) {
  const __m128i upper = _mm_unpackhi_epi64(bytes, bytes);
  if (is_signed) return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(upper)};
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(upper)};
}

inline Channels expand_quants(__m128i bytes, bool is_signed, const Integers& zero_points,
                              const Channels& scales, const Channels& minimums) {
  const Integers quants = expand_bytes(bytes, is_signed);
  const __m256i low = _mm256_sub_epi32(quants.low, zero_points.low);
  const __m256i high = _mm256_sub_epi32(quants.high, zero_points.high);
  return {_mm256_fmadd_ps(scales.low, _mm256_cvtepi32_ps(low), minimums.low),
          _mm256_fmadd_ps(scales.high, _mm256_cvtepi32_ps(high), minimums.high)};
}

// 16 channels x 4 k of bytes, as they lie in a panel -> the 16 channels of each k.
inline void transpose_step(const std::byte* from, __m128i (&by_k)[4]) {
  const __m128i by_byte = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m128i rows[4];
  for (int i = 0; i < 4; ++i) {
    rows[i] =
        _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i), by_byte);
  }
  const __m128i first01 = _mm_unpacklo_epi32(rows[0], rows[1]);
  const __m128i first23 = _mm_unpackhi_epi32(rows[0], rows[1]);
  const __m128i second01 = _mm_unpacklo_epi32(rows[2], rows[3]);
  const __m128i second23 = _mm_unpackhi_epi32(rows[2], rows[3]);
  by_k[0] = _mm_unpacklo_epi64(first01, second01);
  by_k[1] = _mm_unpackhi_epi64(first01, second01);
  by_k[2] = _mm_unpacklo_epi64(first23, second23);
  by_k[3] = _mm_unpackhi_epi64(first23, second23);
}

// 16 bytes of e4m3 as fp32, by way of f16 (see avx512_f32.cc).
inline Channels expand_e4m3(__m128i bytes) {
  const __m256i words = _mm256_cvtepi8_epi16(bytes);
  const __m256i magnitude =
      _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(0x3f80));
  const __m256i sign = _mm256_and_si256(words, _mm256_set1_epi16(-0x8000));
  const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80));
  const __m256i nan = _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7e00));
  const __m256i halves = _mm256_or_si256(_mm256_or_si256(magnitude, sign), nan);
  const __m256 factor = _mm256_set1_ps(256.0f);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), factor),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), factor)};
}

// One group of a panel of fp8, before its scales.
inline void expand_fp8_group(const std::byte* from, ExpandedBlock& block) {
  for (int64_t k = 0; k < traits(WeightFormat::fp8).group_size; k += 4) {
    __m128i by_k[4];
    transpose_step(from + byte_quant_offset(0, k), by_k);
    for (int i = 0; i < 4; ++i) {
      store_channels(block.weights + (k + i) * kTileN, expand_e4m3(by_k[i]));
    }
  }
}

// K positions [begin, begin + depth) of a panel as fp32; begin and depth are multiples of 32.
template <WeightFormat format>
inline void expand_block(const GemmTask& task, int64_t panel, int64_t begin, int64_t depth,
                         ExpandedBlock& block) {
  constexpr WeightFormatTraits t = traits(format);
  const std::byte* base = task.panels + panel * task.panel_size;
  if constexpr (format == WeightFormat::bf16) {
    for (int64_t k = 0; k < depth; k += 2) {
      const Pair low = expand_bf16(base + (begin + k) * 32);
      const Pair high = expand_bf16(base + (begin + k) * 32 + 32);
      store_channels(block.weights + k * kTileN, {low.even, high.even});
      store_channels(block.weights + (k + 1) * kTileN, {low.odd, high.odd});
    }
  } else {
    Channels scales = {};
    Channels minimums = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    Integers zero_points = {_mm256_set1_epi32(t.zero_point), _mm256_set1_epi32(t.zero_point)};
    for (int64_t k = 0; k < depth; k += 4) {
      const int64_t at = begin + k;
      if (k == 0 || starts_group(t, at)) {
        const int64_t group = group_of(t, at);
        scales = load_group_values<format>(base + task.layout.scales,
                                           base + task.layout.super_scales, group);
        if constexpr (t.has_minimum) {
          minimums = load_group_values<format>(base + task.layout.minimums,
                                               base + task.layout.super_minimums, group);
        }
        if constexpr (t.has_zero_points) {
          const std::byte* from = base + task.layout.zero_points + group * kTileN;
          zero_points =
              expand_bytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), false);
        }
      }
      __m128i by_k[4];
      if constexpr (t.bits == 4) {
        transpose_step(base + nibble_quant_offset(0, at), by_k);
        const __m128i mask = _mm_set1_epi8(15);
        for (__m128i& bytes : by_k) {
          if (is_high_nibble(at)) bytes = _mm_srli_epi16(bytes, 4);
          bytes = _mm_and_si128(bytes, mask);
          if constexpr (t.codebook != Codebook::none) {
            bytes = _mm_shuffle_epi8(_mm256_castsi256_si128(codebook_vector<format>()), bytes);
          }
        }
      } else {
        transpose_step(base + byte_quant_offset(0, at), by_k);
      }
      for (int i = 0; i < 4; ++i) {
        store_channels(block.weights + (k + i) * kTileN,
                       expand_quants(by_k[i], t.min_quant < 0, zero_points, scales, minimums));
      }
    }
  }
}

// acc[rows][16] += products of an expanded block, times `scales` if it is_scaled.
template <int rows, bool is_scaled>
inline void multiply_block(const ExpandedBlock& block, int64_t depth, const float* a,
                           int64_t stride, const Channels& scales, float* acc) {
  Channels sums[rows];
  for (int r = 0; r < rows; ++r) {
    sums[r] = is_scaled ? Channels{_mm256_setzero_ps(), _mm256_setzero_ps()}
                        : load_channels(acc + r * kTileN);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Channels w = load_channels(block.weights + k * kTileN);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + r * stride + k);
      sums[r].low = _mm256_fmadd_ps(w.low, x, sums[r].low);
      sums[r].high = _mm256_fmadd_ps(w.high, x, sums[r].high);
    }
  }
  for (int r = 0; r < rows; ++r) {
    if constexpr (is_scaled) {
      const Channels before = load_channels(acc + r * kTileN);
      sums[r] = {_mm256_fmadd_ps(sums[r].low, scales.low, before.low),
                 _mm256_fmadd_ps(sums[r].high, scales.high, before.high)};
    }
    store_channels(acc + r * kTileN, sums[r]);
  }
}

template <int rows, bool is_scaled>
inline void multiply_rows(const ExpandedBlock& block, int64_t depth, const float* a, int64_t stride,
                          int64_t count, const Channels& scales, float* acc) {
  for (; count >= rows; count -= rows) {
    multiply_block<rows, is_scaled>(block, depth, a, stride, scales, acc);
    a += rows * stride;
    acc += rows * kTileN;
  }
  if constexpr (rows > 1) {
    if (count > 0) {
      multiply_rows<rows / 2, is_scaled>(block, depth, a, stride, count, scales, acc);
    }
  }
}

template <WeightFormat format>
void blocked_panels(const GemmTask& task) {
  // The unscaled products of a group of fp8 are summed on their own.
  constexpr bool is_scaled = format == WeightFormat::fp8;
  constexpr int64_t block_depth = is_scaled ? traits(format).group_size : kBlockDepth;
  ExpandedBlock block;
  alignas(64) float acc[kMaxRows * kTileN];
  int64_t rows_per_block = kActivationBytes / (task.padded_k * static_cast<int64_t>(sizeof(float)));
  rows_per_block = rows_per_block < kMinRows   ? kMinRows
                   : rows_per_block > kMaxRows ? kMaxRows
                                               : rows_per_block;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t rows = task.m - begin < rows_per_block ? task.m - begin : rows_per_block;
    const float* a = reinterpret_cast<const float*>(task.a) + begin * task.a_stride;
    for (int64_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
      for (int64_t i = 0; i < rows * kTileN; ++i) acc[i] = 0.0f;
      for (int64_t k = 0; k < task.padded_k; k += block_depth) {
        const int64_t depth = task.padded_k - k < block_depth ? task.padded_k - k : block_depth;
        Channels scales = {};
        if constexpr (is_scaled) {
          const std::byte* base = task.panels + panel * task.panel_size;
          expand_fp8_group(base + byte_quant_offset(0, k), block);
          scales = load_group_values<format>(base + task.layout.scales, nullptr, k / block_depth);
        } else {
          expand_block<format>(task, panel, k, depth, block);
        }
        multiply_rows<kBlockRows, is_scaled>(block, depth, a + k, task.a_stride, rows, scales, acc);
      }
      for (int64_t m = 0; m < rows; ++m) {
        finish_row(task, begin + m, panel, load_channels(acc + m * kTileN));
      }
    }
  }
}

}  // namespace

using enum WeightFormat;
template <>
void gemm_f32<bf16>(const GemmTask& task) {
  switch (task.m) {
    case 0:
      return;
    case 1:
      return direct_panels<1, 4>(task);
    case 2:
      return direct_panels<2, 4>(task);
    case 3:
      return direct_panels<3, 2>(task);
    case 4:
      return direct_panels<4, 2>(task);
    default:
      return blocked_panels<bf16>(task);
  }
}
template <>
void gemm_f32<q4_0>(const GemmTask& task) {
  blocked_panels<q4_0>(task);
}
template <>
void gemm_f32<q4_1>(const GemmTask& task) {
  blocked_panels<q4_1>(task);
}
template <>
void gemm_f32<q4_k>(const GemmTask& task) {
  blocked_panels<q4_k>(task);
}
template <>
void gemm_f32<q4_z>(const GemmTask& task) {
  blocked_panels<q4_z>(task);
}
template <>
void gemm_f32<fp4>(const GemmTask& task) {
  blocked_panels<fp4>(task);
}
template <>
void gemm_f32<fp4_16>(const GemmTask& task) {
  blocked_panels<fp4_16>(task);
}
template <>
void gemm_f32<q8_0>(const GemmTask& task) {
  blocked_panels<q8_0>(task);
}
template <>
void gemm_f32<q8_1>(const GemmTask& task) {
  blocked_panels<q8_1>(task);
}
template <>
void gemm_f32<q8_k>(const GemmTask& task) {
  blocked_panels<q8_k>(task);
}
template <>
void gemm_f32<q8_k16>(const GemmTask& task) {
  blocked_panels<q8_k16>(task);
}

template <>
void gemm_f32<int8>(const GemmTask& task) {
  blocked_panels<int8>(task);
}
template <>
void gemm_f32<fp8>(const GemmTask& task) {
  blocked_panels<fp8>(task);
}

}  // namespace tw::kernels::avx2
