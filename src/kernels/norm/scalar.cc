#include "kernels/math/vector_scalar.h"
#include "kernels/norm/norm_impl.h"

namespace tw::kernels::scalar {

const NormKernels kNormKernels = {rms_norm<Vec>, add_normed<Vec>, add_rms_norm<Vec>,
                                  layer_norm<Vec>};

}  // namespace tw::kernels::scalar
