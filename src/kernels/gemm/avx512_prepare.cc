// Activations for the AVX-512 and AMX kernels; the results equal those of scalar.cc bit for bit.
//
// Four groups of 32 at a time: their maxima and sums are reduced side by side by transposing, and
// the divisions are one vector's.
#include <immintrin.h>

#include <cstddef>

#include "kernels/gemm/avx512.h"

namespace tw::kernels::avx512 {
namespace {

constexpr int kGroup = 32;
constexpr int kBatch = 4;  // groups at a time; rows are padded to a multiple
static_assert(kSuperGroup % (kBatch * kGroup) == 0);

// The largest element of each of four vectors.
inline __m128i max_of_each(const __m512i (&v)[kBatch]) {
  const __m512i v01 =
      _mm512_max_epu32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i v23 =
      _mm512_max_epu32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  const __m512i all =
      _mm512_max_epu32(_mm512_unpacklo_epi64(v01, v23), _mm512_unpackhi_epi64(v01, v23));
  const __m256i half =
      _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// Sums of the first and of the second 16 quants of each of four groups.
struct HalfSums {
  __m128i first;
  __m128i second;
};

inline HalfSums half_sums(const __m256i (&quants)[kBatch]) {
  // vpsadbw sums 8 unsigned bytes; 128 too much each.
  const __m512i flip = _mm512_set1_epi8(-128);
  const auto sum_eights = [&](__m256i low, __m256i high) {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return _mm512_cvtepi64_epi32(
        _mm512_sad_epu8(_mm512_xor_si512(both, flip), _mm512_setzero_si512()));
  };
  // Low lane: both halves of group 0, then of group 2; high lane: of groups 1 and 3.
  const __m256i halves = _mm256_sub_epi32(
      _mm256_hadd_epi32(sum_eights(quants[0], quants[1]), sum_eights(quants[2], quants[3])),
      _mm256_set1_epi32(16 * 128));
  const __m128i even = _mm256_castsi256_si128(halves);
  const __m128i odd = _mm256_extracti128_si256(halves, 1);
  const __m128i groups01 = _mm_unpacklo_epi32(even, odd);  // firsts, then seconds
  const __m128i groups23 = _mm_unpackhi_epi32(even, odd);
  return {_mm_unpacklo_epi64(groups01, groups23), _mm_unpackhi_epi64(groups01, groups23)};
}

// 128 activations -> 128 quants and what the kernels need to know of their four groups.
inline void quantize_groups(const __m512 (&x)[2 * kBatch], std::byte* quants,
                            ActivationGroup* groups) {
  // The largest magnitude by its bits, so that a NaN wins (see scalar.cc).
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  __m512i largest[kBatch];
  for (int g = 0; g < kBatch; ++g) {
    largest[g] =
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x[2 * g]), magnitude_bits),
                         _mm512_and_si512(_mm512_castps_si512(x[2 * g + 1]), magnitude_bits));
  }
  const __m128i bits = max_of_each(largest);
  const __m128 magnitude = _mm_castsi128_ps(bits);
  const __mmask8 usable =
      _mm_cmp_ps_mask(magnitude, _mm_set1_ps(kSmallestQuantizedMagnitude), _CMP_GE_OQ) &
      _mm_cmplt_epi32_mask(bits, _mm_set1_epi32(0x7f800000));
  const __m128 inverse = _mm_div_ps(_mm_set1_ps(127.0f), magnitude);
  const __m128 scale = _mm_div_ps(magnitude, _mm_set1_ps(127.0f));
  float inverses[kBatch];
  _mm_storeu_ps(inverses, inverse);

  __m256i packed[kBatch];
  for (int g = 0; g < kBatch; ++g) {
    const auto lanes = static_cast<__mmask16>((usable >> g & 1) != 0 ? 0xffff : 0);
    const __m512 factor = _mm512_set1_ps(inverses[g]);
    const __m512i first = _mm512_cvtps_epi32(_mm512_maskz_mul_ps(lanes, x[2 * g], factor));
    const __m512i second = _mm512_cvtps_epi32(_mm512_maskz_mul_ps(lanes, x[2 * g + 1], factor));
    packed[g] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(first)),
                                        _mm512_cvtepi32_epi8(second), 1);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(quants + g * kGroup), packed[g]);
  }
  const HalfSums sums = half_sums(packed);
  const __m128i sum = _mm_add_epi32(sums.first, sums.second);
  // Four columns -> four groups.
  __m128 columns[4] = {scale, _mm_mul_ps(scale, _mm_cvtepi32_ps(sum)), _mm_castsi128_ps(sum),
                       _mm_castsi128_ps(sums.first)};
  _MM_TRANSPOSE4_PS(columns[0], columns[1], columns[2], columns[3]);
  static_assert(sizeof(ActivationGroup) == 16 && offsetof(ActivationGroup, scale) == 0 &&
                offsetof(ActivationGroup, scaled_sum) == 4 && offsetof(ActivationGroup, sum) == 8);
  for (int g = 0; g < kBatch; ++g) {
    _mm_storeu_ps(reinterpret_cast<float*>(groups + g), columns[g]);
  }
}

// The lanes of 16 values from `begin` on that lie before `end`.
inline __mmask16 lanes_before(int64_t begin, int64_t end) {
  const int64_t left = end - begin;
  return static_cast<__mmask16>(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
}

}  // namespace

void prepare_q8(const PrepareTask& task) {
  for (int64_t m = task.row_begin; m < task.row_end; ++m) {
    const float* x = task.a + m * task.a_stride;
    std::byte* values = task.values + m * task.stride;
    ActivationGroup* groups = task.groups + m * task.groups_stride;
    for (int64_t g = 0; g < task.groups_per_row; g += kBatch) {
      __m512 batch[2 * kBatch];
      for (int i = 0; i < 2 * kBatch; ++i) {
        const int64_t k = g * kGroup + 16 * i;
        batch[i] = _mm512_maskz_loadu_ps(lanes_before(k, task.k), x + k);
      }
      quantize_groups(batch, values + g * kGroup, groups + g);
    }
    for (int64_t g = task.groups_per_row; g < task.groups_stride; ++g) groups[g] = {};
    for (int64_t k = task.groups_per_row * kGroup; k < task.stride; ++k) values[k] = std::byte{0};
  }
}

}  // namespace tw::kernels::avx512
