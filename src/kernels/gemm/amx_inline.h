// Pieces that the AMX kernels share. Everything here has internal linkage: see kernel_task.h.
#pragma once

#include <immintrin.h>

#include "kernels/gemm/avx512_inline.h"
#include "kernels/gemm/kernel_task.h"

namespace tw::kernels::amx {
namespace {

using avx512::codebook_vector;
using avx512::finish_row;
using avx512::load_group_values;

// The 64 bytes that LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// The compiler does not know that tile loads read what their addresses point at: this makes it
// write everything to memory first.
inline void finish_stores() {
  __asm__ volatile("" ::: "memory");
}

inline void load_config(const TileConfig& config) {
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

}  // namespace
}  // namespace tw::kernels::amx
