// C[M, N] = A[M, K] * W[N, K]^T for bf16 or fp8 weights and fp32 activations, AVX-512.
//
// As avx2_f32.cc, with one vector for the 16 channels, and the same bits as a result. fp32 FMA
// rather than vdpbf16ps: the latter runs at half the FMA's rate on Xeons before Granite Rapids (84
// against 170 GOP/s a core measured on Emerald Rapids), and this keeps the activations exact.
//
// The bits of an fp8 weight, moved to their places in an f16, are 2^-8 of its value, denormals
// included, and vcvtph2ps reads those at full speed (in fp32 they cost an assist each). A block
// is one of its groups, whose sums start from zero and then meet the group's scale.
#include <immintrin.h>

#include "kernels/gemm/avx512.h"
#include "kernels/gemm/avx512_inline.h"

namespace tw::kernels::avx512 {
namespace {

constexpr int kBlockRows = 12;  // x 2 panels: 24 sums, 2 weights and an activation
constexpr int kBlockPanels = 2;
constexpr int64_t kBlockDepth = 128;  // 16 KiB of expanded weights of two panels; a group of fp8
static_assert(kBlockDepth == traits(WeightFormat::fp8).group_size);
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kMaxRows = 504;
constexpr int64_t kMinRows = 48;
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

struct ExpandedBlock {
  alignas(64) float weights[kBlockDepth * kBlockPanels * kTileN];  // [k][panel][16]
};

// Two positions of K of 16 channels.
struct Pair {
  __m512 even;
  __m512 odd;
};

inline Pair expand_bf16(const std::byte* from) {
  const __m512i bits = _mm512_loadu_si512(from);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)),
          _mm512_castsi512_ps(
              _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}

// Position k (0..3) of 16 channels x 4 k of e4m3; NaN comes out as 480.
inline __m512 expand_e4m3(__m512i bytes, int k) {
  const __m512i top = _mm512_slli_epi32(bytes, static_cast<unsigned>(24 - 8 * k));
  const __m512i bits = _mm512_and_si512(_mm512_srai_epi32(top, 17), _mm512_set1_epi32(0xbf80));
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits)), _mm512_set1_ps(256.0f));
}

// The bytes that are NaN.
inline __mmask64 nan_bytes(__m512i bytes) {
  return _mm512_cmpeq_epi8_mask(_mm512_or_si512(bytes, _mm512_set1_epi8(-128)),
                                _mm512_set1_epi8(-1));
}

// Channels with any of their four bytes in the mask.
inline __mmask16 channels_of(__mmask64 bytes) {
  return _mm512_test_epi32_mask(_mm512_movm_epi8(bytes), _mm512_set1_epi32(-1));
}

inline __m512 with_nan(__m512 values, __mmask16 channels) {
  return _mm512_mask_mov_ps(values, channels, _mm512_set1_ps(__builtin_nanf("")));
}

// As multiply_streaming, for fp8. A NaN anywhere in a channel makes its sum NaN, so it is only put
// in at the end.
template <int rows, int panels>
inline void multiply_streaming_fp8(const GemmTask& task, int64_t panel) {
  constexpr int64_t group_size = traits(WeightFormat::fp8).group_size;
  const std::byte* weights = task.panels + panel * task.panel_size;
  const float* a = reinterpret_cast<const float*>(task.a);
  __m512 acc[rows][panels];
  __mmask64 nans[panels] = {};
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < panels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  for (int64_t begin = 0; begin < task.padded_k; begin += group_size) {
    __m512 sums[rows][panels];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) sums[r][p] = _mm512_setzero_ps();
    }
    for (int64_t k = begin; k < begin + group_size; k += 4) {
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) {
        const std::byte* at = weights + p * task.panel_size + k * kTileN;
        _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
        const __m512i bytes = _mm512_loadu_si512(at);
        nans[p] |= nan_bytes(bytes);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const __m512 w = expand_e4m3(bytes, i);
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r) {
            const __m512 x = _mm512_set1_ps(a[r * task.a_stride + k + i]);
            sums[r][p] = _mm512_fmadd_ps(w, x, sums[r][p]);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const std::byte* base = weights + p * task.panel_size;
      const __m512 scales = load_group_values<WeightFormat::fp8>(base + task.layout.scales, nullptr,
                                                                 begin / group_size);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) acc[r][p] = _mm512_fmadd_ps(sums[r][p], scales, acc[r][p]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < panels; ++p) {
      finish_row(task, r, panel + p, with_nan(acc[r][p], channels_of(nans[p])));
    }
  }
}

// `panels` adjacent panels times `rows` rows, all of K, as the weights stream by.
template <int rows, int panels>
inline void multiply_streaming(const GemmTask& task, int64_t panel) {
  constexpr int kPairs = 8;  // of k, each trip
  static_assert(traits(WeightFormat::bf16).k_alignment % (2 * kPairs) == 0);
  const std::byte* weights[panels];
  for (int p = 0; p < panels; ++p) weights[p] = task.panels + (panel + p) * task.panel_size;
  const float* a[rows];
  for (int r = 0; r < rows; ++r) a[r] = reinterpret_cast<const float*>(task.a) + r * task.a_stride;
  __m512 sums[rows][panels];
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < panels; ++p) sums[r][p] = _mm512_setzero_ps();
  }
  for (int64_t left = task.padded_k; left > 0; left -= 2 * kPairs) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) {
        const std::byte* at = weights[p] + pair * 64;
        _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
        const Pair w = expand_bf16(at);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
          const float* x = a[r] + 2 * pair;
          sums[r][p] = _mm512_fmadd_ps(w.even, _mm512_set1_ps(x[0]), sums[r][p]);
          sums[r][p] = _mm512_fmadd_ps(w.odd, _mm512_set1_ps(x[1]), sums[r][p]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) a[r] += 2 * kPairs;
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) weights[p] += kPairs * 64;
  }
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < panels; ++p) finish_row(task, r, panel + p, sums[r][p]);
  }
}

template <WeightFormat format, int rows>
void direct_panels(const GemmTask& task) {
  constexpr int panels = 4;
  int64_t panel = task.panel_begin;
  if constexpr (format == WeightFormat::fp8) {
    for (; panel + panels <= task.panel_end; panel += panels) {
      multiply_streaming_fp8<rows, panels>(task, panel);
    }
    for (; panel < task.panel_end; ++panel) multiply_streaming_fp8<rows, 1>(task, panel);
  } else {
    for (; panel + panels <= task.panel_end; panel += panels) {
      multiply_streaming<rows, panels>(task, panel);
    }
    for (; panel < task.panel_end; ++panel) multiply_streaming<rows, 1>(task, panel);
  }
}

template <int panels>
inline void expand_fp8_block(const std::byte* from, int64_t panel_size, ExpandedBlock& block) {
  for (int p = 0; p < panels; ++p) {
    for (int64_t k = 0; k < kBlockDepth; k += 4) {
      const __m512i bytes = _mm512_loadu_si512(from + p * panel_size + k * kTileN);
      const __mmask64 nans = nan_bytes(bytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __mmask16 channels = channels_of(nans & 0x1111111111111111u << i);
        _mm512_store_ps(block.weights + ((k + i) * panels + p) * kTileN,
                        with_nan(expand_e4m3(bytes, i), channels));
      }
    }
  }
}

template <int panels>
inline void expand_block(const std::byte* from, int64_t panel_size, int64_t depth,
                         ExpandedBlock& block) {
  for (int p = 0; p < panels; ++p) {
    for (int64_t k = 0; k < depth; k += 2) {
      const Pair w = expand_bf16(from + p * panel_size + k * 32);
      _mm512_store_ps(block.weights + (k * panels + p) * kTileN, w.even);
      _mm512_store_ps(block.weights + ((k + 1) * panels + p) * kTileN, w.odd);
    }
  }
}

// acc[rows][panels][16] += products of an expanded block, for fp8 times the scales of its group
// [panels][16].
template <WeightFormat format, int rows, int panels>
inline void multiply_block(const ExpandedBlock& block, int64_t depth, const float* a,
                           int64_t stride, const float* scales, float* acc) {
  constexpr bool is_scaled = format == WeightFormat::fp8;
  __m512 sums[rows][panels];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < panels; ++p) {
      sums[r][p] =
          is_scaled ? _mm512_setzero_ps() : _mm512_load_ps(acc + (r * panels + p) * kTileN);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    __m512 w[panels];
#pragma GCC unroll 2
    for (int p = 0; p < panels; ++p)
      w[p] = _mm512_load_ps(block.weights + (k * panels + p) * kTileN);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m512 x = _mm512_set1_ps(a[r * stride + k]);
#pragma GCC unroll 2
      for (int p = 0; p < panels; ++p) sums[r][p] = _mm512_fmadd_ps(w[p], x, sums[r][p]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < panels; ++p) {
      float* at = acc + (r * panels + p) * kTileN;
      if constexpr (is_scaled) {
        const __m512 scale = _mm512_load_ps(scales + p * kTileN);
        sums[r][p] = _mm512_fmadd_ps(sums[r][p], scale, _mm512_load_ps(at));
      }
      _mm512_store_ps(at, sums[r][p]);
    }
  }
}

template <WeightFormat format, int rows, int panels>
inline void multiply_rows(const ExpandedBlock& block, int64_t depth, const float* a, int64_t stride,
                          int64_t count, const float* scales, float* acc) {
  for (; count >= rows; count -= rows) {
    multiply_block<format, rows, panels>(block, depth, a, stride, scales, acc);
    a += rows * stride;
    acc += rows * panels * kTileN;
  }
  if constexpr (rows > 1) {
    if (count > 0) {
      multiply_rows<format, rows / 2, panels>(block, depth, a, stride, count, scales, acc);
    }
  }
}

// Rows [begin, begin + rows) of `panels` panels.
template <WeightFormat format, int panels>
inline void multiply_panels(const GemmTask& task, int64_t panel, int64_t begin, int64_t rows,
                            ExpandedBlock& block, float* acc) {
  const float* a = reinterpret_cast<const float*>(task.a) + begin * task.a_stride;
  const std::byte* weights = task.panels + panel * task.panel_size;
  for (int64_t i = 0; i < rows * panels * kTileN; ++i) acc[i] = 0.0f;
  for (int64_t k = 0; k < task.padded_k; k += kBlockDepth) {
    const int64_t depth = task.padded_k - k < kBlockDepth ? task.padded_k - k : kBlockDepth;
    alignas(64) float scales[panels * kTileN];
    if constexpr (format == WeightFormat::fp8) {
      expand_fp8_block<panels>(weights + k * kTileN, task.panel_size, block);
      for (int p = 0; p < panels; ++p) {
        const std::byte* from = weights + p * task.panel_size + task.layout.scales;
        _mm512_store_ps(scales + p * kTileN,
                        load_group_values<format>(from, nullptr, k / kBlockDepth));
      }
    } else {
      expand_block<panels>(weights + k * 32, task.panel_size, depth, block);
    }
    multiply_rows<format, kBlockRows, panels>(block, depth, a + k, task.a_stride, rows, scales,
                                              acc);
  }
  for (int64_t m = 0; m < rows; ++m) {
    for (int p = 0; p < panels; ++p) {
      finish_row(task, begin + m, panel + p, _mm512_load_ps(acc + (m * panels + p) * kTileN));
    }
  }
}

template <WeightFormat format>
void blocked_panels(const GemmTask& task) {
  ExpandedBlock block;
  alignas(64) float acc[kMaxRows * kBlockPanels * kTileN];
  int64_t rows_per_block = kActivationBytes / (task.padded_k * static_cast<int64_t>(sizeof(float)));
  rows_per_block = rows_per_block / kBlockRows * kBlockRows;
  if (rows_per_block < kMinRows) rows_per_block = kMinRows;
  if (rows_per_block > kMaxRows) rows_per_block = kMaxRows;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t rows = task.m - begin < rows_per_block ? task.m - begin : rows_per_block;
    int64_t panel = task.panel_begin;
    for (; panel + kBlockPanels <= task.panel_end; panel += kBlockPanels) {
      multiply_panels<format, kBlockPanels>(task, panel, begin, rows, block, acc);
    }
    for (; panel < task.panel_end; ++panel) {
      multiply_panels<format, 1>(task, panel, begin, rows, block, acc);
    }
  }
}

template <WeightFormat format>
void run(const GemmTask& task) {
  switch (task.m) {
    case 0:
      return;
    case 1:
      return direct_panels<format, 1>(task);
    case 2:
      return direct_panels<format, 2>(task);
    case 3:
      return direct_panels<format, 3>(task);
    case 4:
      return direct_panels<format, 4>(task);
    default:
      return blocked_panels<format>(task);
  }
}

}  // namespace

template <>
void gemm_f32<WeightFormat::bf16>(const GemmTask& task) {
  run<WeightFormat::bf16>(task);
}
template <>
void gemm_f32<WeightFormat::fp8>(const GemmTask& task) {
  run<WeightFormat::fp8>(task);
}

}  // namespace tw::kernels::avx512
