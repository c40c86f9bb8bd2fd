#include "kernels/activation/activation_impl.h"
#include "kernels/math/vector_avx512.h"

namespace tw::kernels::avx512 {

const ActivationKernels kActivationKernels = {gated_activation<Vec>, clamped_swiglu<Vec>,
                                              interleaved_activation<Vec>, plain_activation<Vec>,
                                              soft_cap<Vec>};

}  // namespace tw::kernels::avx512
