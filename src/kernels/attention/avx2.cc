#include "kernels/attention/attention_impl.h"
#include "kernels/math/vector_avx2.h"

namespace tw::kernels::avx2 {

const AttentionKernels kAttentionKernels = {Attention<Vec>::attend, Attention<Vec>::merge};

}  // namespace tw::kernels::avx2
