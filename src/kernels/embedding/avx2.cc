#include "kernels/embedding/embedding_impl.h"
#include "kernels/math/vector_avx2.h"

namespace tw::kernels::avx2 {

const EmbeddingKernels kEmbeddingKernels = {dense_embedding<Vec>, packed_embedding<Vec>};

}  // namespace tw::kernels::avx2
