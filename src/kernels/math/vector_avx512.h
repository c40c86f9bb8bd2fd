// Vec (see vector_scalar.h) as one ZMM register: AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/dtype.h"

namespace tw::kernels::avx512 {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 30;  // of the 32 ZMM

  __m512 all;

  [[gnu::always_inline]] static Vec zero() { return {_mm512_setzero_ps()}; }
  [[gnu::always_inline]] static Vec broadcast(float value) { return {_mm512_set1_ps(value)}; }
  [[gnu::always_inline]] static Vec load(const float* data) { return {_mm512_loadu_ps(data)}; }
  [[gnu::always_inline]] static Vec load_first(const float* data, int64_t count) {
    return {_mm512_maskz_loadu_ps(first(count), data)};
  }
  [[gnu::always_inline]] static Vec load_bf16(const bf16_t* data) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  [[gnu::always_inline]] static Vec load_f16(const f16_t* data) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)))};
  }
  [[gnu::always_inline]] static Vec load_narrow(const f8_e4m3_t* data) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
    return from_e4m3_high(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
  }
  [[gnu::always_inline]] static Vec load_narrow(const bf16_t* data) { return load_bf16(data); }
  [[gnu::always_inline]] static Vec load_even(const bf16_t* data) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(data), 16))};
  }
  [[gnu::always_inline]] static Vec load_odd(const bf16_t* data) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(data), mask))};
  }
  [[gnu::always_inline]] static Vec load_even(const f8_e4m3_t* data) {
    return from_e4m3_high(_mm256_slli_epi16(words(data), 8));
  }
  [[gnu::always_inline]] static Vec load_odd(const f8_e4m3_t* data) {
    return from_e4m3_high(words(data));
  }

  [[gnu::always_inline]] void store(float* data) const { _mm512_storeu_ps(data, all); }
  [[gnu::always_inline]] void store_first(float* data, int64_t count) const {
    _mm512_mask_storeu_ps(data, first(count), all);
  }
  [[gnu::always_inline]] void store_narrow(bf16_t* data) const {
    const __m512i bits = _mm512_castps_si512(all);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i nearest =
        _mm512_add_epi32(bits, _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(all, all, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_srli_epi32(_mm512_mask_mov_epi32(nearest, is_nan, quiet), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data), _mm512_cvtepi32_epi16(rounded));
  }
  // The steps of to_f8_e4m3 (core/dtype.h).
  [[gnu::always_inline]] void store_narrow(f8_e4m3_t* data) const {
    const __m512i bits = _mm512_castps_si512(all);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    const __m512 magnitude = _mm512_min_ps(_mm512_abs_ps(all), _mm512_set1_ps(448.0f));
    const __m512i normal = _mm512_castps_si512(magnitude);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(normal, 20), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(normal, is_odd), _mm512_set1_epi32(0x7ffff - 0x3c000000)),
        20);
    const __m512i tiny =
        _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(magnitude, _mm512_set1_ps(0x1p14f))),
                         _mm512_set1_epi32(0x46800000));
    const __mmask16 is_tiny = _mm512_cmplt_epi32_mask(normal, _mm512_set1_epi32(0x3c800000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(all, all, _CMP_UNORD_Q);
    const __m512i byte = _mm512_mask_mov_epi32(_mm512_mask_mov_epi32(rounded, is_tiny, tiny),
                                               is_nan, _mm512_set1_epi32(0x7f));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(data),
                     _mm512_cvtepi32_epi8(_mm512_or_si512(byte, sign)));
  }
  [[gnu::always_inline]] static void store_pairs(Vec even, Vec odd, bf16_t* data) {
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even.all), 16);
    const __m512i joined = _mm512_mask_mov_epi16(low, 0xaaaaaaaau, _mm512_castps_si512(odd.all));
    _mm512_storeu_si512(data, joined);
  }
  [[gnu::always_inline]] static void transpose(const uint32_t* from, int64_t from_stride,
                                               uint32_t* to, int64_t to_stride) {
    // Four 4 x 4 transpositions inside the 128-bit quarters, then of the quarters themselves.
    __m512i rows[16], quads[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(from + i * from_stride);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      const __m512i a = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
      const __m512i b = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
      const __m512i c = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]);
      const __m512i d = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
      quads[i] = _mm512_unpacklo_epi64(a, c);
      quads[i + 1] = _mm512_unpackhi_epi64(a, c);
      quads[i + 2] = _mm512_unpacklo_epi64(b, d);
      quads[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i a = _mm512_shuffle_i32x4(quads[j], quads[j + 4], 0x88);
      const __m512i b = _mm512_shuffle_i32x4(quads[j + 8], quads[j + 12], 0x88);
      const __m512i c = _mm512_shuffle_i32x4(quads[j], quads[j + 4], 0xdd);
      const __m512i d = _mm512_shuffle_i32x4(quads[j + 8], quads[j + 12], 0xdd);
      _mm512_storeu_si512(to + j * to_stride, _mm512_shuffle_i32x4(a, b, 0x88));
      _mm512_storeu_si512(to + (j + 8) * to_stride, _mm512_shuffle_i32x4(a, b, 0xdd));
      _mm512_storeu_si512(to + (j + 4) * to_stride, _mm512_shuffle_i32x4(c, d, 0x88));
      _mm512_storeu_si512(to + (j + 12) * to_stride, _mm512_shuffle_i32x4(c, d, 0xdd));
    }
  }

  [[gnu::always_inline]] float reduce_add() const {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  [[gnu::always_inline]] float reduce_max() const {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
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
    return {_mm512_cvtph_ps(bits)};
  }
  [[gnu::always_inline]] static __mmask16 first(int64_t count) {
    if (count >= 16) return 0xffff;
    return count <= 0 ? __mmask16{0} : static_cast<__mmask16>((1u << count) - 1);
  }
};

[[gnu::always_inline]] inline Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
[[gnu::always_inline]] inline Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Vec abs(Vec a) {
  return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.all)};
}
[[gnu::always_inline]] inline Vec copy_sign(Vec magnitude, Vec sign) {
  const __m512 mask = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(mask, magnitude.all), _mm512_and_ps(mask, sign.all))};
}
[[gnu::always_inline]] inline Vec exponent_from_low_bits(Vec a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.all), 23))};
}

}  // namespace
}  // namespace tw::kernels::avx512
