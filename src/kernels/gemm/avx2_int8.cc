// C[M, N] = A[M, K] * W[N, K]^T for int8 weights and int8 activations, AVX2.
//
// As avx2_q8.cc multiplies q8_0: |w| as unsigned bytes times the activations with w's sign, which
// at most reaches 2 * 128 * 127 in the 16 bits of vpmaddubsw; joined to 32 bits at every step. The
// sums stay in registers over all of K: of four panels where one row streams them from memory, of
// four rows (8 sums) where there are more.
#include <immintrin.h>

#include "kernels/gemm/avx2.h"
#include "kernels/gemm/avx2_inline.h"

namespace tw::kernels::avx2 {
namespace {

constexpr int kBlockRows = 4;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kActivationBytes = 1 << 20;  // of a block of rows: half of L2

struct Sums {
  __m256i low;   // channels 0-7
  __m256i high;  // channels 8-15
};

inline __m256i broadcast4(const std::byte* from) {
  return _mm256_broadcastd_epi32(_mm_loadu_si32(from));
}

inline __m256i add_products(__m256i sum, __m256i magnitude, __m256i w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Rows [m, m + rows) of `panels` adjacent panels, all of K.
template <int rows, int panels>
inline void multiply(const GemmTask& task, int64_t panel, int64_t m) {
  const std::byte* weights = task.panels + panel * task.panel_size;
  const std::byte* a = task.a + m * task.a_stride;
  Sums sums[rows][panels];
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < panels; ++p) sums[r][p] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  for (int64_t k = 0; k < task.padded_k; k += 4) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const std::byte* at = weights + p * task.panel_size + k * kTileN;
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32));
      const __m256i low_magnitude = _mm256_abs_epi8(low);
      const __m256i high_magnitude = _mm256_abs_epi8(high);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const __m256i x = broadcast4(a + r * task.a_stride + k);
        sums[r][p].low = add_products(sums[r][p].low, low_magnitude, low, x);
        sums[r][p].high = add_products(sums[r][p].high, high_magnitude, high, x);
      }
    }
  }
  for (int p = 0; p < panels; ++p) {
    const std::byte* base = task.panels + (panel + p) * task.panel_size;
    const Channels scales =
        load_channels(reinterpret_cast<const float*>(base + task.layout.scales));
    for (int r = 0; r < rows; ++r) {
      const __m256 a_scale = _mm256_set1_ps(task.groups[(m + r) * task.groups_stride].scale);
      const __m256 low = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r][p].low), scales.low);
      const __m256 high = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r][p].high), scales.high);
      finish_row(task, m + r, panel + p,
                 {_mm256_mul_ps(low, a_scale), _mm256_mul_ps(high, a_scale)});
    }
  }
}

template <int rows, int panels>
void direct_panels(const GemmTask& task) {
  int64_t panel = task.panel_begin;
  for (; panel + panels <= task.panel_end; panel += panels) multiply<rows, panels>(task, panel, 0);
  for (; panel < task.panel_end; ++panel) multiply<rows, 1>(task, panel, 0);
}

// Rows [begin, end), `rows` at a time, then the rest with fewer.
template <int rows>
inline void multiply_rows(const GemmTask& task, int64_t panel, int64_t begin, int64_t end) {
  int64_t m = begin;
  for (; m + rows <= end; m += rows) multiply<rows, 1>(task, panel, m);
  if constexpr (rows > 1) {
    if (m < end) multiply_rows<rows / 2>(task, panel, m, end);
  }
}

}  // namespace

void gemm_int8(const GemmTask& task) {
  if (task.m == 0) return;
  if (task.m == 1) return direct_panels<1, 4>(task);
  if (task.m == 2) return direct_panels<2, 2>(task);
  int64_t rows_per_block = kActivationBytes / task.padded_k / kBlockRows * kBlockRows;
  if (rows_per_block < kBlockRows) rows_per_block = kBlockRows;
  for (int64_t begin = 0; begin < task.m; begin += rows_per_block) {
    const int64_t end = begin + rows_per_block < task.m ? begin + rows_per_block : task.m;
    for (int64_t panel = task.panel_begin; panel < task.panel_end; ++panel) {
      multiply_rows<kBlockRows>(task, panel, begin, end);
    }
  }
}

}  // namespace tw::kernels::avx2
