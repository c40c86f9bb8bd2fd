// AWQ (AutoAWQ's "gemm" version): 4 bit, groups along K, a zero point per group and channel.
//
//   <module>.qweight  int32 [K, N/8]       nibble i of a word: channel 8 w + {0, 2, 4, 6, 1, 3, 5,
//   7}[i] <module>.qzeros   int32 [groups, N/8]  the same order <module>.scales   f16   [groups, N]
//   weight = scale * (quant - zero)
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_awq_scheme(const Json& quantization_config,
                                                        const std::string& source);

}  // namespace tw
