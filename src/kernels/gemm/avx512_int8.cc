// C[M, N] = A[M, K] * W[N, K]^T for int8 weights and int8 activations, AVX-512 with VNNI.
//
// A step is one vector: 16 channels x 4 bytes of K, made unsigned by flipping the top bits;
// vpdpbusd multiplies it by four activations that are broadcast to all lanes. Flipping adds
// 128 * (sum of the row's activations), so the sums start from that, negated. They stay in
// registers over all of K; what wraps around 32 bits on the way comes back.
//
// Few rows stream four panels side by side (see avx2_q8.cc). More rows are multiplied twelve at a
// time by two panels (24 sums, 2 weights, an activation), which come from L1 or L2 for every twelve
// rows: 24 multiplications hide two loads.
#include <immintrin.h>

#include "kernels/gemm/avx512.h"
#include "kernels/gemm/avx512_inline.h"

namespace tw::kernels::avx512 {
namespace {

constexpr int kBlockRows = 12;
constexpr int kSteps = 8;  // of 4 k, each trip
static_assert(traits(WeightFormat::int8).k_alignment % (4 * kSteps) == 0);
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

inline __m512i broadcast4(const std::byte* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm512_set1_epi32(four);
}

// Rows [m, m + rows) of `panels` adjacent panels, all of K.
template <int rows, int panels, bool streaming>
inline void multiply(const GemmTask& task, int64_t panel, int64_t m) {
  const __m512i flip = _mm512_set1_epi8(-128);
  const ActivationGroup* groups = task.groups + m * task.groups_stride;
  __m512i sums[rows][panels];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r) {
    const __m512i start = _mm512_set1_epi32(groups[r * task.groups_stride].sum * -128);
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) sums[r][p] = start;
  }
  // Three rows from each of these are reached by what an address can hold: stride times 0, 1, 2.
  constexpr int kBases = (rows + 2) / 3;
  const std::byte* a[kBases];
  for (int i = 0; i < kBases; ++i) a[i] = task.a + (m + 3 * i) * task.a_stride;
  const int64_t stride = task.a_stride;
  const std::byte* weights[panels];
  for (int p = 0; p < panels; ++p) weights[p] = task.panels + (panel + p) * task.panel_size;
  for (int64_t left = task.padded_k; left > 0; left -= kSteps * 4) {
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step) {
      __m512i w[panels];
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) {
        const std::byte* at = weights[p] + step * 64;
        if constexpr (streaming) {
          _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
        }
        w[p] = _mm512_xor_si512(_mm512_loadu_si512(at), flip);
      }
#pragma GCC unroll 12
      for (int r = 0; r < rows; ++r) {
        const __m512i x = broadcast4(a[r / 3] + r % 3 * stride + 4 * step);
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) sums[r][p] = _mm512_dpbusd_epi32(sums[r][p], w[p], x);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kBases; ++i) a[i] += kSteps * 4;
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) weights[p] += kSteps * 64;
  }
#pragma GCC unroll 4
  for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) finish_int8_row(task, m + r, panel + p, sums[r][p]);
  }
}

template <int rows>
void direct_panels(const GemmTask& task) {
  constexpr int panels = 4;
  int64_t panel = task.panel_begin;
  for (; panel + panels <= task.panel_end; panel += panels) {
    multiply<rows, panels, true>(task, panel, 0);
  }
  for (; panel < task.panel_end; ++panel) multiply<rows, 1, true>(task, panel, 0);
}

// Rows [begin, end), `rows` at a time, then the rest with fewer.
template <int rows, int panels>
inline void multiply_rows(const GemmTask& task, int64_t panel, int64_t begin, int64_t end) {
  int64_t m = begin;
  for (; m + rows <= end; m += rows) multiply<rows, panels, false>(task, panel, m);
  if constexpr (rows > 1) {
    if (m < end) multiply_rows<rows / 2, panels>(task, panel, m, end);
  }
}

void blocked_panels(const GemmTask& task) {
  int64_t rows_per_block = kActivationBytes / task.padded_k / kBlockRows * kBlockRows;
  if (rows_per_block < kBlockRows) rows_per_block = kBlockRows;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    int64_t panel = task.panel_begin;
    for (; panel + 2 <= task.panel_end; panel += 2) {
      multiply_rows<kBlockRows, 2>(task, panel, begin, end);
    }
    if (panel < task.panel_end) multiply_rows<kBlockRows, 1>(task, panel, begin, end);
  }
}

}  // namespace

void gemm_int8(const GemmTask& task) {
  switch (task.m) {
    case 0:
      return;
    case 1:
      return direct_panels<1>(task);
    case 2:
      return direct_panels<2>(task);
    case 3:
      return direct_panels<3>(task);
    case 4:
      return direct_panels<4>(task);
    default:
      return blocked_panels(task);
  }
}

}  // namespace tw::kernels::avx512
