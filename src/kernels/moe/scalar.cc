#include "kernels/math/vector_scalar.h"
#include "kernels/moe/combine_impl.h"
#include "kernels/moe/moe_kernels.h"
#include "kernels/moe/router_impl.h"

namespace tw::kernels::scalar {

const MoeKernels kMoeKernels = {route<Vec>, combine<Vec>};

}  // namespace tw::kernels::scalar
