#include "kernels/math/vector_avx2.h"
#include "kernels/rope/rope_impl.h"

namespace tw::kernels::avx2 {

const RopeKernels kRopeKernels = {rope_and_store_kv<Vec>};

}  // namespace tw::kernels::avx2
