#include "kernels/math/vector_avx512.h"
#include "kernels/moe/combine_impl.h"
#include "kernels/moe/moe_kernels.h"
#include "kernels/moe/router_impl.h"

namespace tw::kernels::avx512 {

const MoeKernels kMoeKernels = {route<Vec>, combine<Vec>};

}  // namespace tw::kernels::avx512
