// C[M, N] = A[M, K] * W[N, K]^T for bf16 weights and bf16 activations, AMX-BF16.
//
// Every row count takes TDPBF16PS, also one row (tiles of one row): the instruction adds a row's
// products in an order of its own, and so a row's result never depends on its company. It treats
// denormal inputs as zero and rounds to nearest even. The loops are those of amx_matrix.h.
#include <immintrin.h>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_matrix.h"

namespace tw::kernels::amx {
namespace {

struct MultiplyBf16 : TileBf16 {
  static constexpr bool widens = false;
};

// Round to nearest even; NaN stays NaN (quiet), as to_bf16 does.
inline __m256i round_to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
}

}  // namespace

void gemm_bf16(const GemmTask& task) {
  multiply_matrix<MultiplyBf16>(task);
}

void prepare_bf16(const PrepareTask& task) {
  for (int64_t m = task.row_begin; m < task.row_end; ++m) {
    const float* x = task.a + m * task.a_stride;
    auto* out = reinterpret_cast<uint16_t*>(task.values) + m * task.stride;
    for (int64_t k = 0; k < task.stride; k += 16) {
      const int64_t left = task.k - k;
      const auto read = static_cast<__mmask16>(left >= 16  ? 0xffff
                                               : left <= 0 ? 0
                                                           : (1 << left) - 1);
      const int64_t room = task.stride - k;
      const auto write = static_cast<__mmask16>(room >= 16 ? 0xffff : (1 << room) - 1);
      _mm256_mask_storeu_epi16(out + k, write, round_to_bf16(_mm512_maskz_loadu_ps(read, x + k)));
    }
  }
}

}  // namespace tw::kernels::amx
