#include "kernels/attention/latent_impl.h"
#include "kernels/math/vector_avx512.h"

namespace tw::kernels::avx512 {
namespace {

using Kernels = Attention<Vec, Latents<Vec, f8_e4m3_t>>;

}  // namespace

const LatentAttentionKernels kLatentAttentionFp8Kernels = {store_latents<Vec, f8_e4m3_t>,
                                                           Kernels::attend, Kernels::merge};

}  // namespace tw::kernels::avx512
