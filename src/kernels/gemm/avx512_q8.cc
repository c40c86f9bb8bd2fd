// C[M, N] = A[M, K] * W[N, K]^T for quantized weights and q8 activations, AVX-512 with VNNI.
//
// A step is one vector: 16 channels x 4 bytes of K. vpdpbusd multiplies it, as unsigned bytes, by
// four activations that its memory operand broadcasts, and adds into 32 bits; nothing can overflow.
// q8_0's signed quants become unsigned by flipping the top bit. What that and zero points add,
// offset * (sum of the activations), is where the sums start from, negated. A codebook's factors
// are looked up by vpshufb.
//
// Few rows (kDirectRows): weights are unpacked in registers as they stream by; this is bound by
// memory, and several panels side by side keep more requests to it open. More rows: a block of a
// panel is unpacked once into L1 and meets all rows, twelve at a time: 12 integer and 12 fp32 sums,
// and a few operands, in 32 registers. Both do the same fp32 operations in the same order.
#include <immintrin.h>

#include "kernels/gemm/avx512.h"
#include "kernels/gemm/avx512_inline.h"

namespace tw::kernels::avx512 {
namespace {

constexpr int kGroup = 32;
constexpr int kSteps = kGroup / 4;  // of 4 k, 64 bytes as unpacked bytes
constexpr int kDirectRows = 4;
constexpr int kBlockRows = 12;
constexpr int kPanels = 4;                // that stream side by side; see avx2_q8.cc
constexpr int64_t kPrefetchBytes = 4096;  // ahead of each
constexpr int kBlockGroups = 32;          // 16 KiB of unpacked quants
constexpr int64_t kMaxRows = 512;         // fp32 sums of 32 KiB
constexpr int64_t kMinRows = 96;
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

template <WeightFormat format>
struct Properties {
  static constexpr WeightFormatTraits t = traits(format);
  static constexpr bool is_signed = t.min_quant < 0;
  static constexpr bool is_packed = t.bits == 4;
  static constexpr int parts = kGroup / t.group_size;  // weight groups per activation group
  static constexpr int steps_per_part = kSteps / parts;
  static constexpr int offset = is_signed ? 128 : t.zero_point;  // of the unsigned quants
};

// A panel, or a block of it that was unpacked: unsigned bytes, and scales as floats.
struct WeightBlock {
  const std::byte* quants;
  const std::byte* scales;
  const std::byte* super_scales;
  const std::byte* minimums;
  const std::byte* super_minimums;
  const std::byte* zero_points;  // uint8, or, unpacked, int32
  int64_t groups;
};

struct UnpackBuffer {
  alignas(64) std::byte quants[kBlockGroups * kGroup * kTileN];
  alignas(64) float scales[kBlockGroups * 2 * kTileN];
  alignas(64) float minimums[kBlockGroups * kTileN];
  alignas(64) int32_t zero_points[kBlockGroups * kTileN];
};

// The unsigned bytes of step `step` of a group as it lies in a panel.
template <WeightFormat format>
inline __m512i load_step(const std::byte* group, int step) {
  using P = Properties<format>;
  if constexpr (P::is_packed) {
    __m512i bytes = _mm512_loadu_si512(group + step % 4 * 64);
    if (step >= 4) bytes = _mm512_srli_epi16(bytes, 4);
    bytes = _mm512_and_si512(bytes, _mm512_set1_epi8(15));
    if constexpr (P::t.codebook == Codebook::none) return bytes;
    return _mm512_shuffle_epi8(codebook_vector<format>(), bytes);
  } else {
    const __m512i bytes = _mm512_loadu_si512(group + step * 64);
    if constexpr (!P::is_signed) return bytes;
    return _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
  }
}

// Zero points of weight group `index` as 32-bit numbers; nothing where the format's is a constant.
template <WeightFormat format, bool unpacked>
inline __m512i load_zero_points(const WeightBlock& block, int64_t index) {
  if constexpr (!Properties<format>::t.has_zero_points) return _mm512_setzero_si512();
  if constexpr (unpacked) {
    return _mm512_load_si512(block.zero_points + index * (4 * kTileN));
  } else {
    return _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.zero_points + index * kTileN)));
  }
}

// Where the sums of a group start. A group's own zero points are multiplied by vpmaddwd: both
// factors fit in 16 bits, and the upper halves of the zero points are 0.
template <WeightFormat format>
inline __m512i negated_offset(const ActivationGroup& group, int part, __m512i zero_points) {
  using P = Properties<format>;
  int32_t sum = group.sum;
  if constexpr (P::parts == 2) {
    sum = part == 0 ? group.first_half_sum : group.sum - group.first_half_sum;
  }
  if constexpr (P::t.has_zero_points) {
    return _mm512_madd_epi16(zero_points, _mm512_set1_epi32(-sum));
  }
  if constexpr (P::offset == 0) return _mm512_setzero_si512();
  return _mm512_set1_epi32(sum * -P::offset);
}

inline __m512i broadcast4(const std::byte* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm512_set1_epi32(four);
}

// sums[rows] += products of group g of a block.
template <WeightFormat format, int rows, bool unpacked>
inline void multiply_group(const WeightBlock& block, int64_t g, const std::byte* a, int64_t stride,
                           const ActivationGroup* groups, int64_t groups_stride,
                           __m512 (&sums)[rows]) {
  using P = Properties<format>;
  constexpr int64_t group_bytes = P::is_packed && !unpacked ? 256 : 512;
  const std::byte* quants = block.quants + g * group_bytes;
#pragma GCC unroll 2
  for (int part = 0; part < P::parts; ++part) {
    const int64_t index = g * P::parts + part;
    const __m512i zero_points = load_zero_points<format, unpacked>(block, index);
    __m512i products[rows];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      products[r] = negated_offset<format>(groups[r * groups_stride + g], part, zero_points);
    }
#pragma GCC unroll 8
    for (int i = 0; i < P::steps_per_part; ++i) {
      // Low and high nibbles of the same bytes follow each other.
      const bool interleaved = P::is_packed && P::parts == 1 && !unpacked;
      const int step = interleaved ? i / 2 + i % 2 * 4 : part * P::steps_per_part + i;
      const __m512i w =
          unpacked ? _mm512_load_si512(quants + step * 64) : load_step<format>(quants, step);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const __m512i x = broadcast4(a + r * stride + g * kGroup + 4 * step);
        products[r] = _mm512_dpbusd_epi32(products[r], w, x);
      }
    }
    const __m512 scales = unpacked
                              ? _mm512_load_ps(block.scales + index * (4 * kTileN))
                              : load_group_values<format>(block.scales, block.super_scales, index);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m512 a_scale = _mm512_set1_ps(groups[r * groups_stride + g].scale);
      sums[r] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[r]), _mm512_mul_ps(scales, a_scale), sums[r]);
    }
  }
  if constexpr (P::t.has_minimum) {
    const __m512 minimums =
        unpacked ? _mm512_load_ps(block.minimums + g * (4 * kTileN))
                 : load_group_values<format>(block.minimums, block.super_minimums, g);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m512 scaled_sum = _mm512_set1_ps(groups[r * groups_stride + g].scaled_sum);
      sums[r] = _mm512_fmadd_ps(minimums, scaled_sum, sums[r]);
    }
  }
}

inline WeightBlock whole_panel(const GemmTask& task, int64_t panel) {
  const std::byte* base = task.panels + panel * task.panel_size;
  return {base,
          base + task.layout.scales,
          base + task.layout.super_scales,
          base + task.layout.minimums,
          base + task.layout.super_minimums,
          base + task.layout.zero_points,
          task.padded_k / kGroup};
}

// `panels` adjacent panels times `rows` rows, all of K, a group of each panel at a time.
template <WeightFormat format, int rows, int panels>
inline void multiply_panels(const GemmTask& task, int64_t panel) {
  constexpr int64_t group_bytes = Properties<format>::is_packed ? 256 : 512;
  WeightBlock blocks[panels];
  __m512 sums[panels][rows];
  for (int p = 0; p < panels; ++p) {
    blocks[p] = whole_panel(task, panel + p);
    for (int r = 0; r < rows; ++r) sums[p][r] = _mm512_setzero_ps();
  }
  const int64_t count = task.padded_k / kGroup;
  for (int64_t g = 0; g < count; ++g) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const std::byte* group = blocks[p].quants + g * group_bytes;
#pragma GCC unroll 8
      for (int64_t line = 0; line < group_bytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(group + kPrefetchBytes + line), _MM_HINT_T0);
      }
      multiply_group<format, rows, false>(blocks[p], g, task.a, task.a_stride, task.groups,
                                          task.groups_stride, sums[p]);
    }
  }
  for (int p = 0; p < panels; ++p) {
    for (int r = 0; r < rows; ++r) finish_row(task, r, panel + p, sums[p][r]);
  }
}

template <WeightFormat format, int rows, int panels>
void direct_panels(const GemmTask& task) {
  int64_t panel = task.panel_begin;
  for (; panel + panels <= task.panel_end; panel += panels) {
    multiply_panels<format, rows, panels>(task, panel);
  }
  for (; panel < task.panel_end; ++panel) multiply_panels<format, rows, 1>(task, panel);
}

// Groups [begin, begin + count) of a panel with unsigned bytes for quants and floats for scales.
template <WeightFormat format>
inline WeightBlock unpack_block(const WeightBlock& panel, int64_t begin, int64_t count,
                                UnpackBuffer& buffer) {
  using P = Properties<format>;
  constexpr int64_t group_bytes = P::is_packed ? 256 : 512;
  WeightBlock block = {};
  block.groups = count;
  // The block behind this one arrives while this one is multiplied.
  for (int64_t line = 0; line < count * group_bytes; line += 64) {
    const std::byte* next = panel.quants + (begin + count) * group_bytes;
    _mm_prefetch(reinterpret_cast<const char*>(next + line), _MM_HINT_T1);
  }
  if constexpr (P::is_packed || P::is_signed) {
    for (int64_t g = 0; g < count; ++g) {
#pragma GCC unroll 8
      for (int step = 0; step < kSteps; ++step) {
        _mm512_store_si512(buffer.quants + g * 512 + step * 64,
                           load_step<format>(panel.quants + (begin + g) * group_bytes, step));
      }
    }
    block.quants = buffer.quants;
  } else {
    block.quants = panel.quants + begin * group_bytes;
  }
  for (int64_t i = 0; i < count * P::parts; ++i) {
    _mm512_store_ps(
        buffer.scales + i * kTileN,
        load_group_values<format>(panel.scales, panel.super_scales, begin * P::parts + i));
  }
  block.scales = reinterpret_cast<const std::byte*>(buffer.scales);
  if constexpr (P::t.has_minimum) {
    for (int64_t i = 0; i < count; ++i) {
      _mm512_store_ps(buffer.minimums + i * kTileN,
                      load_group_values<format>(panel.minimums, panel.super_minimums, begin + i));
    }
    block.minimums = reinterpret_cast<const std::byte*>(buffer.minimums);
  }
  if constexpr (P::t.has_zero_points) {
    static_assert(P::parts == 1);
    for (int64_t i = 0; i < count; ++i) {
      _mm512_store_si512(buffer.zero_points + i * kTileN,
                         load_zero_points<format, false>(panel, begin + i));
    }
    block.zero_points = reinterpret_cast<const std::byte*>(buffer.zero_points);
  }
  return block;
}

// acc[rows][16] += products of an unpacked block.
template <WeightFormat format, int rows>
inline void multiply_block(const WeightBlock& block, const std::byte* a, int64_t stride,
                           const ActivationGroup* groups, int64_t groups_stride, float* acc) {
  __m512 sums[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sums[r] = _mm512_load_ps(acc + r * kTileN);
  for (int64_t g = 0; g < block.groups; ++g) {
    multiply_group<format, rows, true>(block, g, a, stride, groups, groups_stride, sums);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) _mm512_store_ps(acc + r * kTileN, sums[r]);
}

// `count` rows of an unpacked block, `rows` at a time, then the rest with fewer.
template <WeightFormat format, int rows>
inline void multiply_rows(const GemmTask& task, const WeightBlock& block, int64_t first_group,
                          int64_t begin, int64_t end, float* acc) {
  int64_t m = begin;
  for (; m + rows <= end; m += rows) {
    multiply_block<format, rows>(block, task.a + m * task.a_stride + first_group * kGroup,
                                 task.a_stride, task.groups + m * task.groups_stride + first_group,
                                 task.groups_stride, acc + (m - begin) * kTileN);
  }
  if constexpr (rows > 1) {
    if (m < end) {
      multiply_rows<format, rows / 2>(task, block, first_group, m, end, acc + (m - begin) * kTileN);
    }
  }
}

template <WeightFormat format>
void blocked_panels(const GemmTask& task) {
  UnpackBuffer buffer;
  alignas(64) float acc[kMaxRows * kTileN];
  int64_t rows_per_block = kActivationBytes / task.padded_k / kBlockRows * kBlockRows;
  if (rows_per_block < kMinRows) rows_per_block = kMinRows;
  if (rows_per_block > kMaxRows) rows_per_block = kMaxRows / kBlockRows * kBlockRows;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    for (int64_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
      const WeightBlock whole = whole_panel(task, panel);
      for (int64_t i = 0; i < (end - begin) * kTileN; ++i) acc[i] = 0.0f;
      for (int64_t g = 0; g < whole.groups; g += kBlockGroups) {
        const int64_t count = whole.groups - g < kBlockGroups ? whole.groups - g : kBlockGroups;
        const WeightBlock block = unpack_block<format>(whole, g, count, buffer);
        multiply_rows<format, kBlockRows>(task, block, g, begin, end, acc);
      }
      for (int64_t m = begin; m < end; ++m) {
        finish_row(task, m, panel, _mm512_load_ps(acc + (m - begin) * kTileN));
      }
    }
  }
}

template <WeightFormat format>
void run(const GemmTask& task) {
  static_assert(kDirectRows == 4);
  switch (task.m) {
    case 0:
      return;
    case 1:
      return direct_panels<format, 1, kPanels>(task);
    case 2:
      return direct_panels<format, 2, kPanels>(task);
    case 3:
      return direct_panels<format, 3, kPanels>(task);
    case 4:
      return direct_panels<format, 4, kPanels>(task);
    default:
      return blocked_panels<format>(task);
  }
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

}  // namespace tw::kernels::avx512
