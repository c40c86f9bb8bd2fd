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
  [[gnu::always_inline]] static Vec load_narrow(const f8_e4m3_t* data) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
    return from_e4m3_high(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
  }
  [[gnu::always_inline]] static Vec load_narrow(const bf16_t* data) { return load_bf16(data); }
  [[gnu::always_inline]] static Vec load_even(const bf16_t* data) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(words(data), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(words(data + 16), 16))};
  }
  [[gnu::always_inline]] static Vec load_odd(const bf16_t* data) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(words(data), mask)),
            _mm256_castsi256_ps(_mm256_and_si256(words(data + 16), mask))};
  }
  [[gnu::always_inline]] static Vec load_even(const f8_e4m3_t* data) {
    return from_e4m3_high(_mm256_slli_epi16(words(data), 8));
  }
  [[gnu::always_inline]] static Vec load_odd(const f8_e4m3_t* data) {
    return from_e4m3_high(words(data));
  }

  [[gnu::always_inline]] void store(float* data) const {
    _mm256_storeu_ps(data, low);
    _mm256_storeu_ps(data + 8, high);
  }
  [[gnu::always_inline]] void store_first(float* data, int64_t count) const {
    _mm256_maskstore_ps(data, first(count), low);
    _mm256_maskstore_ps(data + 8, first(count - 8), high);
  }
  [[gnu::always_inline]] void store_narrow(bf16_t* data) const {
    // packus works within 128-bit halves; the permutation puts the quarters back in order.
    const __m256i packed = _mm256_packus_epi32(rounded(low), rounded(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  [[gnu::always_inline]] void store_narrow(f8_e4m3_t* data) const {
    const __m256i words = _mm256_packus_epi32(to_e4m3(low), to_e4m3(high));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(data), bytes);
  }
  [[gnu::always_inline]] static void store_pairs(const Vec& even, const Vec& odd, bf16_t* data) {
    const auto join = [](__m256 first, __m256 second) {
      return _mm256_blend_epi16(_mm256_srli_epi32(_mm256_castps_si256(first), 16),
                                _mm256_castps_si256(second), 0xaa);
    };
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data), join(even.low, odd.low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data + 16), join(even.high, odd.high));
  }
  [[gnu::always_inline]] static void transpose(const uint32_t* from, int64_t from_stride,
                                               uint32_t* to, int64_t to_stride) {
    for (int i = 0; i < 16; i += 8) {
      for (int j = 0; j < 16; j += 8) {
        transpose_8(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
      }
    }
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
  [[gnu::always_inline]] static __m256i words(const void* data) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(data));
  }
  // e4m3 in the high bytes of 16 words, times 2^-8: in f16 the exponent has one bit more, and a
  // bias that is larger by 8.
  [[gnu::always_inline]] static Vec from_e4m3_high(__m256i bytes) {
    const __m256i bits = _mm256_and_si256(_mm256_srai_epi16(bytes, 1),
                                          _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(bits)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
  }
  // The steps of to_f8_e4m3 (core/dtype.h); a byte in each word.
  [[gnu::always_inline]] static __m256i to_e4m3(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    const __m256 magnitude =
        _mm256_min_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), value), _mm256_set1_ps(448.0f));
    const __m256i normal = _mm256_castps_si256(magnitude);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(normal, 20), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(normal, is_odd), _mm256_set1_epi32(0x7ffff - 0x3c000000)),
        20);
    const __m256i tiny =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_set1_ps(0x1p14f))),
                         _mm256_set1_epi32(0x46800000));
    const __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), normal);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i byte = _mm256_blendv_epi8(_mm256_blendv_epi8(rounded, tiny, is_tiny),
                                            _mm256_set1_epi32(0x7f), is_nan);
    return _mm256_or_si256(byte, sign);
  }
  [[gnu::always_inline]] static void transpose_8(const uint32_t* from, int64_t from_stride,
                                                 uint32_t* to, int64_t to_stride) {
    __m256 rows[8], pairs[8], quads[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) rows[i] = _mm256_castsi256_ps(words(from + i * from_stride));
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
      quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
      quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
      quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    const auto store = [&](int row, __m256 value) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + row * to_stride),
                          _mm256_castps_si256(value));
    };
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      store(i, _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20));
      store(i + 4, _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31));
    }
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
