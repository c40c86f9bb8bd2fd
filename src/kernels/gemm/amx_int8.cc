// C[M, N] = A[M, K] * W[N, K]^T for int8 weights and int8 activations, AMX-INT8.
//
// The sums of all of K are exact in the tiles' 32 bits and meet the scales of row and channel once,
// at the end. The loops are those of amx_matrix.h.
#include <immintrin.h>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_matrix.h"

namespace tw::kernels::amx {
namespace {

struct MultiplyInt8 {
  static constexpr int64_t element_bytes = 1;
  static constexpr bool stores_sums = false;
  static constexpr bool widens = false;
  template <int c, int a, int b>
  static void multiply() {
    // GCC's intrinsic wants literal tile numbers.
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  template <int panels>
  static void finish(const GemmTask& task, int64_t panel, int64_t begin, int64_t end,
                     const float* sums) {
    __m512 scales[panels];
    for (int p = 0; p < panels; ++p) {
      const std::byte* base = task.panels + (panel + p) * task.panel_size;
      scales[p] = _mm512_loadu_ps(base + task.layout.scales);
    }
    const ActivationGroup* groups = task.groups + begin * task.groups_stride;
    const int64_t stride = task.groups_stride;
    avx512::finish_rows<panels>(task, panel, begin, end, [&](int64_t row, int p) {
      const __m512i exact = _mm512_load_si512(sums + (row * panels + p) * kTileN);
      const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(exact), scales[p]);
      return _mm512_mul_ps(scaled, _mm512_set1_ps(groups[row * stride].scale));
    });
  }
};

}  // namespace

void gemm_int8(const GemmTask& task) {
  multiply_matrix<MultiplyInt8>(task);
}

}  // namespace tw::kernels::amx
