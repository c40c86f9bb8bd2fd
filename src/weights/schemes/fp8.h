// quant_method "fp8" (DeepSeek-V3, Qwen3-FP8, and AutoFP8's) and "fbgemm_fp8": e4m3 weights, with
// weight_block_size in blocks whose scales are <module>.weight_scale_inv, without it as
// <module>.weight_scale per tensor or channel (scaled_bytes.h).
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_fp8_scheme(const Json& quantization_config,
                                                        const std::string& source);

}  // namespace tw
