// The scheme of checkpoints without a quantization_config: a linear layer is one tensor,
// "<module>.weight", of floats (bf16, f16, f32) or of GGUF's quantized blocks.
#pragma once

#include "weights/schemes/scheme.h"

namespace tw {

// Also opens the layers that a quantized checkpoint leaves unquantized.
Expected<std::unique_ptr<StoredMatrix>> open_plain_matrix(const Checkpoint& checkpoint,
                                                          const std::string& module, int64_t rows,
                                                          int64_t columns);

std::unique_ptr<const Scheme> make_plain_scheme();

// The matrix of a tensor [rows, columns], whatever it is called; unsupported for types that no
// linear layer can use.
Expected<std::unique_ptr<StoredMatrix>> make_plain_matrix(const StoredTensor& tensor);

}  // namespace tw
