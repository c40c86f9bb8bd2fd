#include "kernels/delta_net/delta_net_impl.h"
#include "kernels/math/vector_avx512.h"

namespace tw::kernels::avx512 {

const DeltaNetKernels kDeltaNetKernels = {convolve<Vec>, apply_delta_rule<Vec>};

}  // namespace tw::kernels::avx512
