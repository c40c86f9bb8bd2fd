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

// What happens to the finished sums of 16 channels; where a task has no scales or no bias, those
// that change nothing, -0 included.
struct ChannelEpilogue {
  __mmask16 mask;
  __m512 scales;
  __m512 bias;

  static ChannelEpilogue make(const GemmTask& task, int64_t panel) {
    const int64_t n = panel * kTileN;
    const int64_t channels = task.n - n < kTileN ? task.n - n : kTileN;
    const auto mask = static_cast<__mmask16>((1u << channels) - 1);
    return {
        mask,
        task.output_scales != nullptr ? _mm512_loadu_ps(task.output_scales + n)
                                      : _mm512_set1_ps(1.0f),
        task.bias != nullptr ? _mm512_maskz_loadu_ps(mask, task.bias + n) : _mm512_set1_ps(-0.0f)};
  }
};

inline bool has_epilogue(const GemmTask& task) {
  return task.output_scales != nullptr || task.bias != nullptr || task.accumulate;
}

// Rows [begin, end) of `panels` panels on their way out: what finish_row does, with all that rows
// share done once. value(r, p) are the sums of row begin + r and panel p.
template <int panels, typename Value>
inline void finish_rows(const GemmTask& task, int64_t panel, int64_t begin, int64_t end,
                        Value value) {
  ChannelEpilogue channels[panels];
  for (int p = 0; p < panels; ++p) channels[p] = ChannelEpilogue::make(task, panel + p);
  // A copy: the compiler must assume that storing a vector may change the task.
  const int64_t stride = task.c_stride;
  float* c = task.c + begin * stride + panel * kTileN;
  if (!has_epilogue(task)) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < end - begin; ++r, c += stride) {
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) {
        _mm512_mask_storeu_ps(c + p * kTileN, channels[p].mask, value(r, p));
      }
    }
    return;
  }
  const auto keep = static_cast<__mmask16>(task.accumulate ? 0xffff : 0);
  for (int64_t r = 0; r < end - begin; ++r, c += stride) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const ChannelEpilogue& channel = channels[p];
      __m512 sums = _mm512_add_ps(_mm512_mul_ps(value(r, p), channel.scales), channel.bias);
      sums = _mm512_mask_add_ps(sums, keep,
                                _mm512_maskz_loadu_ps(channel.mask & keep, c + p * kTileN), sums);
      _mm512_mask_storeu_ps(c + p * kTileN, channel.mask, sums);
    }
  }
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
