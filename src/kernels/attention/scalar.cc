#include "kernels/attention/attention_impl.h"
#include "kernels/math/vector_scalar.h"

namespace tw::kernels::scalar {

const AttentionKernels kAttentionKernels = {Attention<Vec>::attend, Attention<Vec>::merge};

}  // namespace tw::kernels::scalar
