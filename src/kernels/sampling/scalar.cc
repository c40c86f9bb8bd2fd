#include "kernels/math/vector_scalar.h"
#include "kernels/sampling/logits_impl.h"

namespace tw::kernels::scalar {

const LogitsKernels kLogitsKernels = {logits_argmax<Vec>, logits_log_sum_exp<Vec>,
                                      logits_softmax<Vec>};

}  // namespace tw::kernels::scalar
