#include "kernels/attention/paged_heads.h"
#include "kernels/math/vector_scalar.h"

namespace tw::kernels::scalar {
namespace {

using Kernels = Attention<Vec, PagedHeads<Vec, bf16_t>>;

}  // namespace

const AttentionKernels kAttentionKernels = {Kernels::attend, Kernels::merge};

}  // namespace tw::kernels::scalar
