// GGUF's MXFP4 (type 39): blocks of an e8m0 scale and 32 floats of 4 bits, packed exactly.
#pragma once

#include <memory>

#include "weights/schemes/scheme.h"

namespace tw {

// A matrix of that type, which must outlive the result.
std::unique_ptr<StoredMatrix> make_gguf_mxfp4_matrix(const StoredTensor& tensor);

}  // namespace tw
