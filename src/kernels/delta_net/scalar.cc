#include "kernels/delta_net/delta_net_impl.h"
#include "kernels/math/vector_scalar.h"

namespace tw::kernels::scalar {

const DeltaNetKernels kDeltaNetKernels = {convolve<Vec>, apply_delta_rule<Vec>};

}  // namespace tw::kernels::scalar
