#include "kernels/attention/paged_heads.h"
#include "kernels/math/vector_scalar.h"

namespace tw::kernels::scalar {
namespace {

using Kernels = Attention<Vec, PagedHeads<Vec, f8_e4m3_t>>;

}  // namespace

const AttentionKernels kAttentionFp8Kernels = {Kernels::attend, Kernels::merge};

}  // namespace tw::kernels::scalar
