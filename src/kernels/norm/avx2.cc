#include "kernels/math/vector_avx2.h"
#include "kernels/norm/norm_impl.h"

namespace tw::kernels::avx2 {

const NormKernels kNormKernels = {rms_norm<Vec>, add_normed<Vec>, add_rms_norm<Vec>,
                                  layer_norm<Vec>};

}  // namespace tw::kernels::avx2
