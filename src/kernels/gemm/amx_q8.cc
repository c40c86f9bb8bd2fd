// C[M, N] = A[M, K] * W[N, K]^T for quantized weights and q8 activations, AMX-INT8.
//
// Tiles: A is 16 rows x one weight group (32 or 16 k), B the same group of a panel (16 channels,
// exactly the packed order), C their 16 x 16 exact sums in int32. Because every group has scales
// of its own, a C tile holds one group only: it is stored to L1 and added to the 16 fp32
// accumulators (one register per row) as
//   acc = fma(float(sum), weight_scale * activation_scale, acc)
// which is 3 vector operations per row and group, and what bounds the kernel: 16 x 3 on two ports
// take 24 cycles, TMUL 16. Two C tiles alternate, so that TMUL works on a group while the vector
// units finish the one before.
//
// A block of a panel (kBlockGroups groups) is unpacked once into signed bytes and fp32 scales in
// L1, zero points taken off, and meets all row blocks; the fp32 sums wait in memory from one block
// of K to the next. The order of fp32 operations is that of all q8 kernels (gemm.h).
#include <immintrin.h>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_inline.h"

namespace tw::kernels::amx {
namespace {

constexpr int kGroup = 32;
constexpr int kBlockGroups = 32;               // 16 KiB of unpacked quants
constexpr int64_t kMaxRows = 512;              // fp32 sums of 32 KiB
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

template <WeightFormat format>
struct Properties {
  static constexpr WeightFormatTraits t = traits(format);
  static constexpr int parts = kGroup / t.group_size;  // weight groups per activation group
};

// Tiles 0 and 1 hold C, 2 and 3 hold A, 4 and 5 hold B.
template <WeightFormat format>
void configure_tiles() {
  constexpr int depth = Properties<format>::t.group_size;
  TileConfig config;
  for (int parity = 0; parity < 2; ++parity) {
    config.rows[parity] = kBlockRows;
    config.bytes_per_row[parity] = 4 * kTileN;
    config.rows[2 + parity] = kBlockRows;
    config.bytes_per_row[2 + parity] = depth;
    config.rows[4 + parity] = depth / 4;
    config.bytes_per_row[4 + parity] = 4 * kTileN;
  }
  _tile_loadconfig(&config);
}

struct UnpackBuffer {
  alignas(64) std::byte quants[kBlockGroups * kGroup * kTileN];
  alignas(64) float scales[kBlockGroups * 2 * kTileN];
  alignas(64) float minimums[kBlockGroups * kTileN];
};

// One group of a panel as signed bytes, zero point taken off.
template <WeightFormat format>
inline void unpack_quants(const std::byte* group, std::byte* out) {
  constexpr WeightFormatTraits t = traits(format);
  const __m512i zero_point = _mm512_set1_epi8(t.zero_point);
  const auto store = [&](int step, __m512i quants) {
    if constexpr (t.zero_point != 0) quants = _mm512_sub_epi8(quants, zero_point);
    _mm512_store_si512(out + 64 * step, quants);
  };
  if constexpr (t.bits == 4) {
    const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int step = 0; step < 4; ++step) {
      const __m512i bytes = _mm512_loadu_si512(group + 64 * step);
      store(step, _mm512_and_si512(bytes, mask));
      store(step + 4, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask));
    }
  } else {
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) store(step, _mm512_loadu_si512(group + 64 * step));
  }
}

// Groups [begin, begin + count) of panel `panel`.
template <WeightFormat format>
void unpack_block(const GemmTask& task, int64_t panel, int64_t begin, int64_t count,
                  UnpackBuffer& buffer) {
  using P = Properties<format>;
  constexpr int64_t group_bytes = kGroup * kTileN * P::t.bits / 8;
  const std::byte* base = task.panels + panel * task.panel_size;
  for (int64_t g = 0; g < count; ++g) {
    unpack_quants<format>(base + (begin + g) * group_bytes, buffer.quants + g * kGroup * kTileN);
  }
  for (int64_t i = 0; i < count * P::parts; ++i) {
    _mm512_store_ps(
        buffer.scales + i * kTileN,
        load_group_values<format>(base + task.layout.scales, base + task.layout.super_scales,
                                  begin * P::parts + i));
  }
  if constexpr (P::t.has_minimum) {
    for (int64_t i = 0; i < count; ++i) {
      _mm512_store_ps(buffer.minimums + i * kTileN,
                      load_group_values<format>(base + task.layout.minimums,
                                                base + task.layout.super_minimums, begin + i));
    }
  }
}

// Where the 16 rows of a block lie, at the first group of the block of K.
struct RowBlock {
  const std::byte* quants;
  int64_t stride;
  const ActivationGroup* groups;
  int64_t groups_stride;
};

// Exact sums of weight group `index` (in the format's group size) into `out`.
template <WeightFormat format, int parity>
inline void multiply_group(const RowBlock& rows, const UnpackBuffer& weights, int64_t index,
                           int32_t (&out)[kBlockRows][kTileN]) {
  constexpr int64_t depth = Properties<format>::t.group_size;
  const std::byte* a = rows.quants + index * depth;
  const std::byte* b = weights.quants + index * depth * kTileN;
  if constexpr (parity == 0) {
    _tile_zero(0);
    _tile_loadd(2, a, rows.stride);
    _tile_loadd(4, b, 64);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, out, 64);
  } else {
    _tile_zero(1);
    _tile_loadd(3, a, rows.stride);
    _tile_loadd(5, b, 64);
    _tile_dpbssd(1, 3, 5);
    _tile_stored(1, out, 64);
  }
}

// acc += sums * scales (+ minimums, at the last part of an activation group).
template <WeightFormat format>
inline void add_group(const RowBlock& rows, const UnpackBuffer& weights, int64_t index,
                      const int32_t (&sums)[kBlockRows][kTileN], __m512 (&acc)[kBlockRows]) {
  using P = Properties<format>;
  const ActivationGroup* group = rows.groups + index / P::parts;
  const __m512 scales = _mm512_load_ps(weights.scales + index * kTileN);
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) {
    const __m512 a_scale = _mm512_set1_ps(group[r * rows.groups_stride].scale);
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[r])),
                             _mm512_mul_ps(scales, a_scale), acc[r]);
  }
  if constexpr (P::t.has_minimum) {
    static_assert(P::parts == 1);
    const __m512 minimums = _mm512_load_ps(weights.minimums + index * kTileN);
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      const __m512 scaled_sum = _mm512_set1_ps(group[r * rows.groups_stride].scaled_sum);
      acc[r] = _mm512_fmadd_ps(minimums, scaled_sum, acc[r]);
    }
  }
}

// sums[16 rows][16] += products of `count` groups of 32.
template <WeightFormat format>
void multiply_block(const RowBlock& rows, const UnpackBuffer& weights, int64_t count, float* sums) {
  using P = Properties<format>;
  alignas(64) int32_t products[2][kBlockRows][kTileN];
  const int64_t last = count * P::parts - 1;
  __m512 acc[kBlockRows];
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) acc[r] = _mm512_loadu_ps(sums + r * kTileN);
  multiply_group<format, 0>(rows, weights, 0, products[0]);
  int64_t i = 0;
  for (; i + 2 <= last; i += 2) {
    multiply_group<format, 1>(rows, weights, i + 1, products[1]);
    add_group<format>(rows, weights, i, products[0], acc);
    multiply_group<format, 0>(rows, weights, i + 2, products[0]);
    add_group<format>(rows, weights, i + 1, products[1], acc);
  }
  if (i < last) multiply_group<format, 1>(rows, weights, i + 1, products[1]);
  add_group<format>(rows, weights, i, products[0], acc);
  if (i < last) add_group<format>(rows, weights, i + 1, products[1], acc);
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) _mm512_storeu_ps(sums + r * kTileN, acc[r]);
}

template <WeightFormat format>
void run(const GemmTask& task) {
  UnpackBuffer weights;
  alignas(64) float sums[kMaxRows * kTileN];
  const int64_t total = task.m / kBlockRows * kBlockRows;
  const int64_t num_groups = task.padded_k / kGroup;
  int64_t rows_per_block = kActivationBytes / task.padded_k / kBlockRows * kBlockRows;
  if (rows_per_block < 64) rows_per_block = 64;
  if (rows_per_block > kMaxRows) rows_per_block = kMaxRows;
  configure_tiles<format>();
  for (int64_t begin = 0; begin < total; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < total ? begin + rows_per_block : total;
    for (int64_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
      for (int64_t i = 0; i < (end - begin) * kTileN; ++i) sums[i] = 0.0f;
      for (int64_t g = 0; g < num_groups; g += kBlockGroups) {
        const int64_t count = num_groups - g < kBlockGroups ? num_groups - g : kBlockGroups;
        unpack_block<format>(task, panel, g, count, weights);
        for (int64_t m = begin; m < end; m += kBlockRows) {
          const RowBlock rows = {task.a + m * task.a_stride + g * kGroup, task.a_stride,
                                 task.groups + m * task.groups_stride + g, task.groups_stride};
          multiply_block<format>(rows, weights, count, sums + (m - begin) * kTileN);
        }
      }
      for (int64_t m = begin; m < end; ++m) {
        finish_row(task, m, panel, _mm512_load_ps(sums + (m - begin) * kTileN));
      }
    }
  }
  // Other threads and the kernel's context switches shall not carry our tiles around.
  _tile_release();
}

}  // namespace

using enum WeightFormat;
template <>
void gemm_q8<q4_0>(const GemmTask& task) {
  run<q4_0>(task);
}
template <>
void gemm_q8<q4_1>(const GemmTask& task) {
  run<q4_1>(task);
}
template <>
void gemm_q8<q4_k>(const GemmTask& task) {
  run<q4_k>(task);
}
template <>
void gemm_q8<q8_0>(const GemmTask& task) {
  run<q8_0>(task);
}
template <>
void gemm_q8<q8_1>(const GemmTask& task) {
  run<q8_1>(task);
}
template <>
void gemm_q8<q8_k>(const GemmTask& task) {
  run<q8_k>(task);
}
template <>
void gemm_q8<q8_k16>(const GemmTask& task) {
  run<q8_k16>(task);
}

}  // namespace tw::kernels::amx
