#include "kernels/math/vector_avx2.h"
#include "kernels/sampling/logits_impl.h"

namespace tw::kernels::avx2 {

const LogitsKernels kLogitsKernels = {logits_argmax<Vec>, logits_log_sum_exp<Vec>,
                                      logits_softmax<Vec>};

}  // namespace tw::kernels::avx2
