#include "kernels/math/vector_avx512.h"
#include "kernels/rope/rope_impl.h"

namespace tw::kernels::avx512 {

const RopeKernels kRopeKernels = {rope_and_store_kv<Vec>};

}  // namespace tw::kernels::avx512
