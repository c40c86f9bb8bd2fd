// NVIDIA's Model Optimizer. Its configuration lies in config.json or, in older checkpoints, in
// hf_quant_config.json, which the checkpoint's reader puts in the same place.
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_modelopt_scheme(const Json& quantization_config,
                                                             const std::string& source);

}  // namespace tw
