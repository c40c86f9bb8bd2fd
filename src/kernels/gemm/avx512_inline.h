// Pieces that the AVX-512 and AMX kernels share. Everything here has internal linkage: see
// kernel_task.h.
#pragma once

#include <immintrin.h>

#include "kernels/gemm/kernel_task.h"

namespace tw::kernels::avx512 {
namespace {

inline __m512 load_f16_channels(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

// Scales (or minimums) of weight group `index`, counted in the format's group size.
template <WeightFormat format>
inline __m512 load_group_values(const std::byte* values, const std::byte* super_values,
                                int64_t index) {
  constexpr WeightFormatTraits t = traits(format);
  if constexpr (t.scale_kind == ScaleKind::f32) {
    return _mm512_loadu_ps(values + index * (4 * kTileN));
  } else if constexpr (t.scale_kind == ScaleKind::f16) {
    return load_f16_channels(values + index * (2 * kTileN));
  } else {
    const __m128i bytes =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + index * kTileN));
    const __m512i multipliers =
        t.signed_multipliers ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    const __m512 super =
        load_f16_channels(super_values + index / (kSuperGroup / t.group_size) * (2 * kTileN));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(multipliers), super);
  }
}

// The codebook's factors, as vpshufb reads them.
template <WeightFormat format>
inline __m512i codebook_vector() {
  alignas(16) static constexpr CodebookTable table = codebook_table(traits(format).codebook);
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table.factors)));
}

// 16 channels of row m of C on their way out: output scale, bias, accumulation, and the tail of N.
inline void finish_row(const GemmTask& task, int64_t m, int64_t panel, __m512 value) {
  const int64_t n = panel * kTileN;
  const int64_t channels = task.n - n < kTileN ? task.n - n : kTileN;
  const auto mask = static_cast<__mmask16>((1u << channels) - 1);
  float* c = task.c + m * task.c_stride + n;
  if (task.output_scales != nullptr) {
    value = _mm512_mul_ps(value, _mm512_loadu_ps(task.output_scales + n));
  }
  if (task.bias != nullptr) {
    value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, task.bias + n));
  }
  if (task.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), value);
  _mm512_mask_storeu_ps(c, mask, value);
}

// The exact sums of an int8 row: scaled, and on their way out.
inline void finish_int8_row(const GemmTask& task, int64_t m, int64_t panel, __m512i sums) {
  const std::byte* base = task.panels + panel * task.panel_size;
  const __m512 scales = _mm512_loadu_ps(base + task.layout.scales);
  const __m512 a_scale = _mm512_set1_ps(task.groups[m * task.groups_stride].scale);
  const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scales);
  finish_row(task, m, panel, _mm512_mul_ps(scaled, a_scale));
}

}  // namespace
}  // namespace tw::kernels::avx512
