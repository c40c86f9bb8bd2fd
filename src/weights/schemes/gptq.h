// GPTQ (AutoGPTQ, GPTQModel): 4 bit, groups along K, a zero point per group and channel.
//
//   <module>.qweight  int32 [K/8, N]       nibble i of a word: k = 8 w + i
//   <module>.qzeros   int32 [groups, N/8]  nibble i of a word: channel 8 w + i
//   <module>.scales   f16   [groups, N]    weight = scale * (quant - zero)
//   <module>.g_idx    int32 [K]            the group of each k; need not be there
//
// The first version of the format ("gptq") stores zero points less one, "gptq_v2" as they are. With
// act-order (desc_act) groups are spread over K: columns are packed sorted by group.
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

Expected<std::unique_ptr<const Scheme>> make_gptq_scheme(const Json& quantization_config,
                                                         const std::string& source);

}  // namespace tw
