// Which tensors of a checkpoint are quantized.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "weights/checkpoint.h"

namespace tw {

// Whether `module` ("model.layers.0.mlp.up_proj") is a linear layer that quantization by default
// applies to: not the embedding and output matrices, not the routers, the gates of shared experts
// and those of linear attention's states, which are small and decide much, no convolutions, and
// nothing of other modalities.
bool is_quantized_by_default(std::string_view module);

// The module of a tensor "<module>.weight"; empty for any other name.
std::string_view module_of(std::string_view tensor);

// The other modules that engines load together with this one, as one matrix whose parts must then
// share what scale a matrix has as a whole: projections of queries, keys and values, of gate and
// up.
std::vector<std::string> fused_modules(std::string_view module);

// An error unless the checkpoint's weights are floats: it names what has been quantized already.
Status require_unquantized(const Checkpoint& checkpoint);

}  // namespace tw
