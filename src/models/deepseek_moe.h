// The mixture of experts of DeepSeek-V2 and V3, which GLM-4.5 and Kimi-K2 have as well: shared
// experts beside the routed ones, a choice limited to the best groups of experts, and, from V3 on,
// sigmoid scores with a correction bias that takes part in the choice alone.
#pragma once

#include "core/status.h"
#include "nn/moe_block.h"
#include "weights/model_config.h"

namespace tw {

// Reads topk_method (noaux_tc, group_limited_greedy or greedy), scoring_func, n_group, topk_group,
// norm_topk_prob, routed_scaling_factor and n_shared_experts.
Expected<MoeConfig> deepseek_moe(const ModelConfig& config);

// Whether layer `index` has experts: not the first ones, and of the rest every moe_layer_freq-th.
Expected<std::vector<bool>> deepseek_sparse_layers(const ModelConfig& config);

}  // namespace tw
