// C[M, N] = A[M, K] * W[N, K]^T for quantized weights and q8 activations, AMX-INT8.
//
// Tiles: A is 16 rows x one weight group (32 or 16 k), B the same group of a panel (16 channels,
// exactly the packed order), C their 16 x 16 exact sums in int32. Because every group has scales
// of its own, a C tile holds one group only: it is stored to L1 and added to the 16 fp32
// accumulators (one register per row) as
//   acc = fma(float(sum), weight_scale * activation_scale, acc)
// That, and the tile store, bound the kernel: TMUL needs 16 cycles for a group, the vector units 24
// and the store 16; the latter two do not overlap on Sapphire and Emerald Rapids. A tile store also
// makes the loads behind it wait for its multiplication (52 cycles), so each C tile is stored three
// groups after it was begun (measured: 57 cycles a group, against 65 when stored at once).
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
constexpr int kSlots = 4;                      // groups in flight, a C tile each
constexpr int64_t kMaxRows = 512;              // fp32 sums of 32 KiB
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

template <WeightFormat format>
struct Properties {
  static constexpr WeightFormatTraits t = traits(format);
  static constexpr int parts = kGroup / t.group_size;  // weight groups per activation group
};

// Tiles 0 to 3 hold C, 4 and 5 hold A, 6 and 7 hold B; groups take them in turn.
template <WeightFormat format>
void configure_tiles() {
  constexpr int depth = Properties<format>::t.group_size;
  TileConfig config;
  for (int tile = 0; tile < kSlots; ++tile) {
    config.rows[tile] = kBlockRows;
    config.bytes_per_row[tile] = 4 * kTileN;
  }
  for (int tile = 0; tile < 2; ++tile) {
    config.rows[4 + tile] = kBlockRows;
    config.bytes_per_row[4 + tile] = depth;
    config.rows[6 + tile] = depth / 4;
    config.bytes_per_row[6 + tile] = 4 * kTileN;
  }
  load_config(config);
}

struct UnpackBuffer {
  alignas(64) std::byte quants[kBlockGroups * kGroup * kTileN];
  alignas(64) float scales[kBlockGroups * 2 * kTileN];
  alignas(64) float minimums[kBlockGroups * kTileN];
};

// The zero points of group `index` of a panel: a byte for each weight of a step.
template <WeightFormat format>
inline __m512i load_zero_points(const std::byte* zero_points, int64_t index) {
  constexpr WeightFormatTraits t = traits(format);
  if constexpr (!t.has_zero_points) return _mm512_set1_epi8(t.zero_point);
  const __m512i repeat_4 =
      _mm512_set_epi32(0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a,
                       0x09090909, 0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                       0x03030303, 0x02020202, 0x01010101, 0x00000000);
  const __m128i bytes =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(zero_points + index * kTileN));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), repeat_4);
}

// One group of a panel as signed bytes, zero point taken off.
template <WeightFormat format>
inline void unpack_quants(const std::byte* group, __m512i zero_points, std::byte* out) {
  constexpr WeightFormatTraits t = traits(format);
  const auto store = [&](int step, __m512i quants) {
    if constexpr (t.codebook != Codebook::none) {
      quants = _mm512_shuffle_epi8(codebook_vector<format>(), quants);
    }
    if constexpr (t.zero_point != 0 || t.has_zero_points) {
      quants = _mm512_sub_epi8(quants, zero_points);
    }
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

// Groups [begin, begin + count) of panel `panel`. Asks for the block behind it, which arrives while
// this one is multiplied.
template <WeightFormat format>
void unpack_block(const GemmTask& task, int64_t panel, int64_t begin, int64_t count,
                  UnpackBuffer& buffer) {
  using P = Properties<format>;
  constexpr int64_t group_bytes = kGroup * kTileN * P::t.bits / 8;
  const std::byte* base = task.panels + panel * task.panel_size;
  for (int64_t g = 0; g < count; ++g) {
    const std::byte* group = base + (begin + g) * group_bytes;
    for (int64_t line = 0; line < group_bytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(group + kBlockGroups * group_bytes + line),
                   _MM_HINT_T1);
    }
    const __m512i zero_points = load_zero_points<format>(base + task.layout.zero_points, begin + g);
    unpack_quants<format>(group, zero_points, buffer.quants + g * kGroup * kTileN);
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

// Starts the exact sums of weight group `index` (in the format's group size).
template <WeightFormat format, int slot>
inline void multiply_group(const RowBlock& rows, const UnpackBuffer& weights, int64_t index) {
  constexpr int64_t depth = Properties<format>::t.group_size;
  const std::byte* a = rows.quants + index * depth;
  const std::byte* b = weights.quants + index * depth * kTileN;
  if constexpr (slot % 2 == 0) {
    _tile_loadd(4, a, rows.stride);
    _tile_loadd(6, b, 64);
  } else {
    _tile_loadd(5, a, rows.stride);
    _tile_loadd(7, b, 64);
  }
  // Tile numbers are part of the instruction.
  if constexpr (slot == 0) {
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
  } else if constexpr (slot == 1) {
    _tile_zero(1);
    _tile_dpbssd(1, 5, 7);
  } else if constexpr (slot == 2) {
    _tile_zero(2);
    _tile_dpbssd(2, 4, 6);
  } else {
    _tile_zero(3);
    _tile_dpbssd(3, 5, 7);
  }
}

using Sums = int32_t[kBlockRows][kTileN];

template <int slot>
inline void store_sums(Sums& out) {
  if constexpr (slot == 0) _tile_stored(0, out, 64);
  if constexpr (slot == 1) _tile_stored(1, out, 64);
  if constexpr (slot == 2) _tile_stored(2, out, 64);
  if constexpr (slot == 3) _tile_stored(3, out, 64);
}

// acc += sums * scales (+ minimums, at the last part of an activation group).
template <WeightFormat format>
inline void add_group(const RowBlock& rows, const UnpackBuffer& weights, int64_t index,
                      const Sums& sums, __m512 (&acc)[kBlockRows]) {
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

// Starts the group three ahead, and finishes group i, which has slot i % kSlots. Always inlined:
// the accumulators shall stay in registers.
template <WeightFormat format, int slot>
[[gnu::always_inline]] inline void advance(const RowBlock& rows, const UnpackBuffer& weights,
                                           int64_t i, int64_t total, Sums& products,
                                           __m512 (&acc)[kBlockRows]) {
  if (i + 3 < total) multiply_group<format, (slot + 3) % kSlots>(rows, weights, i + 3);
  store_sums<slot>(products);
  add_group<format>(rows, weights, i, products, acc);
}

// sums[16 rows][16] += products of `count` groups of 32.
template <WeightFormat format>
void multiply_block(const RowBlock& rows, const UnpackBuffer& weights, int64_t count, float* sums) {
  alignas(64) Sums products[2];
  const int64_t total = count * Properties<format>::parts;
  __m512 acc[kBlockRows];
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) acc[r] = _mm512_loadu_ps(sums + r * kTileN);
  multiply_group<format, 0>(rows, weights, 0);
  if (total > 1) multiply_group<format, 1>(rows, weights, 1);
  if (total > 2) multiply_group<format, 2>(rows, weights, 2);
  int64_t i = 0;
  for (; i + kSlots <= total; i += kSlots) {
    advance<format, 0>(rows, weights, i, total, products[0], acc);
    advance<format, 1>(rows, weights, i + 1, total, products[1], acc);
    advance<format, 2>(rows, weights, i + 2, total, products[0], acc);
    advance<format, 3>(rows, weights, i + 3, total, products[1], acc);
  }
  if (i < total) advance<format, 0>(rows, weights, i, total, products[0], acc);
  if (i + 1 < total) advance<format, 1>(rows, weights, i + 1, total, products[1], acc);
  if (i + 2 < total) advance<format, 2>(rows, weights, i + 2, total, products[0], acc);
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
        finish_stores();
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
void gemm_q8<q4_z>(const GemmTask& task) {
  run<q4_z>(task);
}
template <>
void gemm_q8<fp4>(const GemmTask& task) {
  run<fp4>(task);
}
template <>
void gemm_q8<fp4_16>(const GemmTask& task) {
  run<fp4_16>(task);
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
