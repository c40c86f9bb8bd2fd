#include "kernels/attention/latent_impl.h"
#include "kernels/math/vector_scalar.h"

namespace tw::kernels::scalar {
namespace {

using Kernels = Attention<Vec, Latents<Vec, bf16_t>>;

}  // namespace

const LatentAttentionKernels kLatentAttentionKernels = {store_latents<Vec, bf16_t>, Kernels::attend,
                                                        Kernels::merge};

}  // namespace tw::kernels::scalar
