#include "kernels/attention/paged_heads.h"
#include "kernels/math/vector_avx512.h"

namespace tw::kernels::avx512 {
namespace {

using Kernels = Attention<Vec, PagedHeads<Vec, bf16_t>>;

}  // namespace

const AttentionKernels kAttentionKernels = {Kernels::attend, Kernels::merge};

}  // namespace tw::kernels::avx512
