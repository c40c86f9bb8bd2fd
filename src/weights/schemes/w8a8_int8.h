// quant_method "w8a8_int8" (SGLang's channel-wise INT8): int8 weights with <module>.weight_scale
// per channel (scaled_bytes.h), activations quantized per token.
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_w8a8_int8_scheme(const Json& quantization_config,
                                                              const std::string& source);

}  // namespace tw
