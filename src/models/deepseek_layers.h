// How DeepSeek-V2 and V3 are built, which GLM-4.5 and Kimi-K2 share: dense layers first, then ones
// with a mixture of experts - shared experts beside the routed ones, a choice limited to the best
// groups of experts, and, from V3 on, sigmoid scores with a correction bias that takes part in the
// choice alone - and behind the last one, a layer that guesses a token further.
#pragma once

#include <functional>

#include "core/status.h"
#include "models/decoder.h"
#include "weights/model_config.h"

namespace tw {

// Loads all layers: attention by `add_attention(index)`, then a dense network or experts. The layer
// that guesses is loaded where the decoder wants it and the checkpoint has it
// (num_nextn_predict_layers). Of the configuration it reads topk_method (noaux_tc,
// group_limited_greedy or greedy), scoring_func, n_group, topk_group, norm_topk_prob,
// routed_scaling_factor, n_shared_experts, first_k_dense_replace and moe_layer_freq.
Status add_deepseek_layers(DecoderLoader& decoder, const ModelConfig& config,
                           const std::function<void(int64_t index)>& add_attention);

}  // namespace tw
