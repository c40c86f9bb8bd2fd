#include "kernels/activation/activation_impl.h"
#include "kernels/math/vector_avx2.h"

namespace tw::kernels::avx2 {

const ActivationKernels kActivationKernels = {gated_activation<Vec>, clamped_swiglu<Vec>,
                                              interleaved_activation<Vec>, plain_activation<Vec>,
                                              soft_cap<Vec>};

}  // namespace tw::kernels::avx2
