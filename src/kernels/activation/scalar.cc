#include "kernels/activation/activation_impl.h"
#include "kernels/math/vector_scalar.h"

namespace tw::kernels::scalar {

const ActivationKernels kActivationKernels = {gated_activation<Vec>, clamped_swiglu<Vec>,
                                              interleaved_activation<Vec>, plain_activation<Vec>,
                                              soft_cap<Vec>};

}  // namespace tw::kernels::scalar
