// compressed-tensors (llm-compressor, Red Hat's and Moonshot's checkpoints): a family of formats.
// The configuration names one, and one or more groups of layers with their number of bits and so
// on.
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_compressed_tensors_scheme(
    const Json& quantization_config, const std::string& source);

}  // namespace tw
