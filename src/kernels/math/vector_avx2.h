// Vec (see vector_scalar.h) as two YMM registers: AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/dtype.h"

namespace tw::kernels::avx2 {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 7;  // 14 of the 16 YMM

  __m256 low;
  __m256 high;

  [[gnu::always_inline]] static Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  [[gnu::always_inline]] static Vec broadcast(float value) {
    return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
  }
  [[gnu::always_inline]] static Vec load(const float* data) {
    return {_mm256_loadu_ps(data), _mm256_loadu_ps(data + 8)};
  }
  [[gnu::always_inline]] static Vec load_first(const float* data, int64_t count) {
    return {_mm256_maskload_ps(data, first(count)), _mm256_maskload_ps(data + 8, first(count - 8))};
  }
  [[gnu::always_inline]] static Vec load_bf16(const bf16_t* data) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    return {widen(_mm256_castsi256_si128(bits)), widen(_mm256_extracti128_si256(bits, 1))};
  }
  [[gnu::always_inline]] static Vec load_f16(const f16_t* data) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(bits)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
  }
  [[gnu::always_inline]] static Vec load_bf16_even(const bf16_t* data) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs(data), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(pairs(data + 16), 16))};
  }
  [[gnu::always_inline]] static Vec load_bf16_odd(const bf16_t* data) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(pairs(data), mask)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs(data + 16), mask))};
  }

  [[gnu::always_inline]] void store(float* data) const {
    _mm256_storeu_ps(data, low);
    _mm256_storeu_ps(data + 8, high);
  }
  [[gnu::always_inline]] void store_first(float* data, int64_t count) const {
    _mm256_maskstore_ps(data, first(count), low);
    _mm256_maskstore_ps(data + 8, first(count - 8), high);
  }
  [[gnu::always_inline]] void store_bf16(bf16_t* data) const {
    // packus works within 128-bit halves; the permutation puts the quarters back in order.
    const __m256i packed = _mm256_packus_epi32(rounded(low), rounded(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data), _mm256_permute4x64_epi64(packed, 0xd8));
  }

  [[gnu::always_inline]] float reduce_add() const {
    const __m256 eight = _mm256_add_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  [[gnu::always_inline]] float reduce_max() const {
    const __m256 eight = _mm256_max_ps(low, high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

 private:
  [[gnu::always_inline]] static __m256i pairs(const bf16_t* data) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
  }
  [[gnu::always_inline]] static __m256i first(int64_t count) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
  }
  [[gnu::always_inline]] static __m256 widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  [[gnu::always_inline]] static __m256i rounded(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i nearest =
        _mm256_add_epi32(bits, _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(nearest, quiet, is_nan), 16);
  }
};

[[gnu::always_inline]] inline Vec operator+(const Vec& a, const Vec& b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Vec operator-(const Vec& a, const Vec& b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Vec operator*(const Vec& a, const Vec& b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Vec operator/(const Vec& a, const Vec& b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
[[gnu::always_inline]] inline Vec max(const Vec& a, const Vec& b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Vec min(const Vec& a, const Vec& b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Vec abs(const Vec& a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
[[gnu::always_inline]] inline Vec copy_sign(const Vec& magnitude, const Vec& sign) {
  const __m256 mask = _mm256_set1_ps(-0.0f);
  const Vec positive = abs(magnitude);
  return {_mm256_or_ps(positive.low, _mm256_and_ps(mask, sign.low)),
          _mm256_or_ps(positive.high, _mm256_and_ps(mask, sign.high))};
}
[[gnu::always_inline]] inline Vec exponent_from_low_bits(const Vec& a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.low), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.high), 23))};
}

}  // namespace
}  // namespace tw::kernels::avx2
