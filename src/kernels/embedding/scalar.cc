#include "kernels/embedding/embedding_impl.h"
#include "kernels/math/vector_scalar.h"

namespace tw::kernels::scalar {

const EmbeddingKernels kEmbeddingKernels = {dense_embedding<Vec>, packed_embedding<Vec>};

}  // namespace tw::kernels::scalar
