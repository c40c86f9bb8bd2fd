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

// The intrinsics for these want literal tile numbers, and spend an instruction on each address.
template <int tile, int offset = 0>
inline void load_tile(const void* from, int64_t stride) {
  __asm__ volatile("tileloadd %c2(%0,%1,1), %%tmm%c3" ::"r"(from), "r"(stride), "i"(offset),
                   "i"(tile));
}

template <int tile, int offset = 0>
inline void store_tile(void* to, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c3, %c2(%0,%1,1)" ::"r"(to), "r"(stride), "i"(offset),
                   "i"(tile)
                   : "memory");
}

template <int tile>
inline void zero_tile() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
}

}  // namespace
}  // namespace tw::kernels::amx
