// Activations for the AVX2 kernels; the results equal those of scalar.cc bit for bit.
#include <immintrin.h>

#include "kernels/gemm/avx2.h"

namespace tw::kernels::avx2 {
namespace {

constexpr int kGroup = 32;
constexpr int kVectors = kGroup / 8;

inline int32_t sum_lanes(__m128i v) {
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
  return _mm_cvtsi128_si32(v);
}

inline uint32_t max_lanes(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

// 32 activations -> 32 quants and what the kernels need to know of them.
inline void quantize_group(const float* x, std::byte* quants, ActivationGroup& group) {
  // The largest magnitude by its bits, so that a NaN wins (see scalar.cc).
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  __m256 values[kVectors];
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < kVectors; ++i) {
    values[i] = _mm256_loadu_ps(x + 8 * i);
    largest =
        _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(values[i]), magnitude_bits));
  }
  const uint32_t bits = max_lanes(largest);
  const float magnitude =
      _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
  auto* out = reinterpret_cast<__m256i*>(quants);
  group.scale = magnitude / 127.0f;
  if (!(magnitude >= kSmallestQuantizedMagnitude) || bits >= 0x7f800000u) {
    _mm256_storeu_si256(out, _mm256_setzero_si256());
    group.sum = group.first_half_sum = 0;
    group.scaled_sum = group.scale * 0.0f;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / magnitude);
  __m256i rounded[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(values[i], inverse));
  }
  // The packs interleave 128-bit lanes; the permutation puts them back in order.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]),
                                            _mm256_packs_epi32(rounded[2], rounded[3]));
  _mm256_storeu_si256(
      out, _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  const __m256i first = _mm256_add_epi32(rounded[0], rounded[1]);
  const __m256i second = _mm256_add_epi32(rounded[2], rounded[3]);
  group.first_half_sum =
      sum_lanes(_mm_add_epi32(_mm256_castsi256_si128(first), _mm256_extracti128_si256(first, 1)));
  group.sum = group.first_half_sum + sum_lanes(_mm_add_epi32(_mm256_castsi256_si128(second),
                                                             _mm256_extracti128_si256(second, 1)));
  group.scaled_sum = group.scale * static_cast<float>(group.sum);
}

// 8 values of a row from k on, those behind its end as zeros.
inline __m256 load_values(const float* x, int64_t k, int64_t end) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int64_t left = end - k;
  if (left >= 8) return _mm256_loadu_ps(x + k);
  if (left <= 0) return _mm256_setzero_ps();
  return _mm256_maskload_ps(x + k,
                            _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left)), index));
}

}  // namespace

void prepare_int8(const PrepareTask& task) {
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int64_t m = task.row_begin; m < task.row_end; ++m) {
    const float* x = task.a + m * task.a_stride;
    std::byte* values = task.values + m * task.stride;
    __m256i largest = _mm256_setzero_si256();
    for (int64_t k = 0; k < task.k; k += 8) {
      const __m256i bits = _mm256_castps_si256(load_values(x, k, task.k));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, magnitude_bits));
    }
    const uint32_t bits = max_lanes(largest);
    const float magnitude =
        _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
    const bool usable = magnitude >= kSmallestQuantizedMagnitude && bits < 0x7f800000u;
    const __m256 inverse = _mm256_set1_ps(usable ? 127.0f / magnitude : 0.0f);
    __m256i sums = _mm256_setzero_si256();
    int64_t k = 0;
    for (; usable && k < task.k; k += kGroup) {
      __m256i rounded[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(load_values(x, k + 8 * i, task.k), inverse));
        sums = _mm256_add_epi32(sums, rounded[i]);
      }
      const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]),
                                                _mm256_packs_epi32(rounded[2], rounded[3]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + k),
                          _mm256_permutevar8x32_epi32(packed, order));
    }
    for (; k < task.stride; ++k) values[k] = std::byte{0};
    ActivationGroup* groups = task.groups + m * task.groups_stride;
    groups[0] = {};
    groups[0].scale = magnitude / 127.0f;
    groups[0].sum =
        sum_lanes(_mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
    groups[0].scaled_sum = groups[0].scale * static_cast<float>(groups[0].sum);
    for (int64_t g = 1; g < task.groups_stride; ++g) groups[g] = {};
  }
}

void prepare_q8(const PrepareTask& task) {
  for (int64_t m = task.row_begin; m < task.row_end; ++m) {
    const float* x = task.a + m * task.a_stride;
    std::byte* values = task.values + m * task.stride;
    ActivationGroup* groups = task.groups + m * task.groups_stride;
    const int64_t whole = task.k / kGroup;
    for (int64_t g = 0; g < whole; ++g) {
      quantize_group(x + g * kGroup, values + g * kGroup, groups[g]);
    }
    for (int64_t g = whole; g < task.groups_per_row; ++g) {
      float padded[kGroup] = {};
      for (int64_t k = g * kGroup; k < task.k; ++k) padded[k - g * kGroup] = x[k];
      quantize_group(padded, values + g * kGroup, groups[g]);
    }
    for (int64_t g = task.groups_per_row; g < task.groups_stride; ++g) groups[g] = {};
    for (int64_t k = task.groups_per_row * kGroup; k < task.stride; ++k) values[k] = std::byte{0};
  }
}

void prepare_f32(const PrepareTask& task) {
  for (int64_t m = task.row_begin; m < task.row_end; ++m) {
    const float* x = task.a + m * task.a_stride;
    float* values = reinterpret_cast<float*>(task.values) + m * task.stride;
    for (int64_t k = 0; k < task.k; ++k) values[k] = x[k];
    for (int64_t k = task.k; k < task.stride; ++k) values[k] = 0.0f;
  }
}

}  // namespace tw::kernels::avx2
