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
  template <int c, int a, int b>
  static void multiply() {
    // GCC's intrinsic wants literal tile numbers.
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  static void finish(const GemmTask& task, int64_t m, int64_t panel, const float* sums) {
    avx512::finish_int8_row(task, m, panel, _mm512_load_si512(sums));
  }
};

}  // namespace

void gemm_int8(const GemmTask& task) {
  multiply_matrix<MultiplyInt8>(task);
}

}  // namespace tw::kernels::amx
