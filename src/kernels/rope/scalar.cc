#include "kernels/math/vector_scalar.h"
#include "kernels/rope/rope_impl.h"

namespace tw::kernels::scalar {

const RopeKernels kRopeKernels = {rope_and_store_kv<Vec>};

}  // namespace tw::kernels::scalar
