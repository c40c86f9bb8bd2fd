#include "kernels/attention/paged_heads.h"
#include "kernels/math/vector_avx512.h"

namespace tw::kernels::avx512 {
namespace {

using Kernels = Attention<Vec, PagedHeads<Vec, f8_e4m3_t>>;

}  // namespace

const AttentionKernels kAttentionFp8Kernels = {Kernels::attend, Kernels::merge};

}  // namespace tw::kernels::avx512
