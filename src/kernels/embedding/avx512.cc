#include "kernels/embedding/embedding_impl.h"
#include "kernels/math/vector_avx512.h"

namespace tw::kernels::avx512 {

const EmbeddingKernels kEmbeddingKernels = {dense_embedding<Vec>, packed_embedding<Vec>};

}  // namespace tw::kernels::avx512
