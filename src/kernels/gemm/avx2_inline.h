// Pieces that the AVX2 kernels share. Everything here has internal linkage: see kernel_task.h.
#pragma once

#include <immintrin.h>

#include "kernels/gemm/kernel_task.h"

namespace tw::kernels::avx2 {
namespace {

// The 16 channels of a panel in fp32.
struct Channels {
  __m256 low;   // channels 0-7
  __m256 high;  // channels 8-15
};

inline Channels load_channels(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

inline void store_channels(float* to, Channels channels) {
  _mm256_storeu_ps(to, channels.low);
  _mm256_storeu_ps(to + 8, channels.high);
}

inline Channels load_f16_channels(const std::byte* from) {
  const auto* halves = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

template <bool is_signed>
inline Channels load_multipliers(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i upper = _mm_unpackhi_epi64(bytes, bytes);
  if constexpr (is_signed) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(upper))};
  } else {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(upper))};
  }
}

// Scales (or minimums) of weight group `index`, counted in the format's group size.
template <WeightFormat format>
inline Channels load_group_values(const std::byte* values, const std::byte* super_values,
                                  int64_t index) {
  constexpr WeightFormatTraits t = traits(format);
  if constexpr (t.scale_kind == ScaleKind::f32) {
    return load_channels(reinterpret_cast<const float*>(values) + index * kTileN);
  } else if constexpr (t.scale_kind == ScaleKind::f16) {
    return load_f16_channels(values + index * (2 * kTileN));
  } else {
    const Channels multipliers = load_multipliers<t.signed_multipliers>(values + index * kTileN);
    const Channels super =
        load_f16_channels(super_values + index / (kSuperGroup / t.group_size) * (2 * kTileN));
    return {_mm256_mul_ps(multipliers.low, super.low), _mm256_mul_ps(multipliers.high, super.high)};
  }
}

// The codebook's factors, as vpshufb reads them.
template <WeightFormat format>
inline __m256i codebook_vector() {
  alignas(16) static constexpr CodebookTable table = codebook_table(traits(format).codebook);
  return _mm256_broadcastsi128_si256(
      _mm_load_si128(reinterpret_cast<const __m128i*>(table.factors)));
}

// 16 channels of row m of C on their way out: output scale, bias, accumulation, and the tail of N.
inline void finish_row(const GemmTask& task, int64_t m, int64_t panel, Channels acc) {
  const int64_t n = panel * kTileN;
  float* c = task.c + m * task.c_stride + n;
  if (task.output_scales != nullptr) {
    const Channels scales = load_channels(task.output_scales + n);
    acc = {_mm256_mul_ps(acc.low, scales.low), _mm256_mul_ps(acc.high, scales.high)};
  }
  if (n + kTileN <= task.n) {
    if (task.bias != nullptr) {
      const Channels bias = load_channels(task.bias + n);
      acc = {_mm256_add_ps(acc.low, bias.low), _mm256_add_ps(acc.high, bias.high)};
    }
    if (task.accumulate) {
      const Channels old = load_channels(c);
      acc = {_mm256_add_ps(old.low, acc.low), _mm256_add_ps(old.high, acc.high)};
    }
    store_channels(c, acc);
    return;
  }
  float values[kTileN];
  store_channels(values, acc);
  for (int64_t i = 0; i < task.n - n; ++i) {
    const float value = task.bias != nullptr ? values[i] + task.bias[n + i] : values[i];
    c[i] = task.accumulate ? c[i] + value : value;
  }
}

}  // namespace
}  // namespace tw::kernels::avx2
