// Pieces that the AMX kernels share. Everything here has internal linkage: see kernel_task.h.
#pragma once

#include <immintrin.h>

#include "kernels/gemm/kernel_task.h"

namespace tw::kernels::amx {
namespace {

// The 64 bytes that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// 16 channels of row m of C on their way out: bias, accumulation, and the tail of N.
inline void finish_row(const GemmTask& task, int64_t m, int64_t panel, const float* sums) {
  const int64_t n = panel * kTileN;
  const int64_t channels = task.n - n < kTileN ? task.n - n : kTileN;
  const auto mask = static_cast<__mmask16>((1u << channels) - 1);
  float* c = task.c + m * task.c_stride + n;
  __m512 value = _mm512_loadu_ps(sums);
  if (task.bias != nullptr) {
    value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, task.bias + n));
  }
  if (task.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), value);
  _mm512_mask_storeu_ps(c, mask, value);
}

}  // namespace
}  // namespace tw::kernels::amx
