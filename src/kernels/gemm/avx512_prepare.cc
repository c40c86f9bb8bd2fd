// Activations for the AVX-512 and AMX kernels; the results equal those of scalar.cc bit for bit.
#include <immintrin.h>

#include "kernels/gemm/avx512.h"

namespace tw::kernels::avx512 {
namespace {

constexpr int kGroup = 32;

inline int32_t sum_lanes(__m512i v) {
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  __m128i quarter = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  quarter = _mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4e));
  quarter = _mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0xb1));
  return _mm_cvtsi128_si32(quarter);
}

inline uint32_t max_lanes(__m512i v) {
  const __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  __m128i quarter = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  quarter = _mm_max_epu32(quarter, _mm_shuffle_epi32(quarter, 0x4e));
  quarter = _mm_max_epu32(quarter, _mm_shuffle_epi32(quarter, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(quarter));
}

// 32 activations -> 32 quants and what the kernels need to know of them.
inline void quantize_group(__m512 first, __m512 second, std::byte* quants, ActivationGroup& group) {
  // The largest magnitude by its bits, so that a NaN wins (see scalar.cc).
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  const uint32_t bits =
      max_lanes(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(first), magnitude_bits),
                                 _mm512_and_si512(_mm512_castps_si512(second), magnitude_bits)));
  const float magnitude =
      _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
  auto* out = reinterpret_cast<__m128i*>(quants);
  group.scale = magnitude / 127.0f;
  if (!(magnitude >= kSmallestQuantizedMagnitude) || bits >= 0x7f800000u) {
    _mm_storeu_si128(out, _mm_setzero_si128());
    _mm_storeu_si128(out + 1, _mm_setzero_si128());
    group.sum = group.first_half_sum = 0;
    group.scaled_sum = group.scale * 0.0f;
    return;
  }
  const __m512 inverse = _mm512_set1_ps(127.0f / magnitude);
  const __m512i rounded0 = _mm512_cvtps_epi32(_mm512_mul_ps(first, inverse));
  const __m512i rounded1 = _mm512_cvtps_epi32(_mm512_mul_ps(second, inverse));
  _mm_storeu_si128(out, _mm512_cvtepi32_epi8(rounded0));
  _mm_storeu_si128(out + 1, _mm512_cvtepi32_epi8(rounded1));
  group.first_half_sum = sum_lanes(rounded0);
  group.sum = group.first_half_sum + sum_lanes(rounded1);
  group.scaled_sum = group.scale * static_cast<float>(group.sum);
}

// The lanes of 16 values from x on that lie before `end`.
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
    for (int64_t g = 0; g < task.groups_per_row; ++g) {
      const int64_t k = g * kGroup;
      quantize_group(_mm512_maskz_loadu_ps(lanes_before(k, task.k), x + k),
                     _mm512_maskz_loadu_ps(lanes_before(k + 16, task.k), x + k + 16), values + k,
                     groups[g]);
    }
    for (int64_t g = task.groups_per_row; g < task.groups_stride; ++g) groups[g] = {};
    for (int64_t k = task.groups_per_row * kGroup; k < task.stride; ++k) values[k] = std::byte{0};
  }
}

}  // namespace tw::kernels::avx512
