// compressed-tensors' "pack-quantized" integers of 4 bits, in groups along K or one per channel.
//
//   <module>.weight_packed      int32 [N, K/8]       nibble i of a word: k = 8 w + i, value + 8
//   <module>.weight_scale       float [N, groups]
//   <module>.weight_zero_point  int32 [N/8, groups]  if asymmetric; nibble i: channel 8 w + i, + 8
//   <module>.weight_shape       int   [2]            N, K
//   <module>.weight_g_idx       int32 [K]            the group of each k, if groups are not in
//   order
//
// weight = scale * (quant - zero point). Also what Kimi K2 calls its native INT4.
#pragma once

#include "core/json.h"
#include "weights/schemes/scheme.h"

namespace tw {

// `weights`: the "weights" object of a config group.
Expected<std::unique_ptr<const Scheme>> make_pack_quantized_scheme(const Json& weights,
                                                                   const std::string& source);

}  // namespace tw
