#include "kernels/attention/attention_impl.h"
#include "kernels/math/vector_avx512.h"

namespace tw::kernels::avx512 {

const AttentionKernels kAttentionKernels = {Attention<Vec>::attend, Attention<Vec>::merge};

}  // namespace tw::kernels::avx512
