// Which layers attend to a window of the last positions and which to all, and which know positions.
#pragma once

#include <functional>
#include <vector>

#include "core/status.h"
#include "nn/attention_block.h"
#include "weights/model_config.h"

namespace tw {

// By layer_types where config.json has it, otherwise by the family's rule, given the layer's index.
// Fails with unsupported for a type that is neither full_attention nor sliding_attention, and with
// corrupt_data for sliding layers without a sliding_window.
Expected<std::vector<bool>> sliding_layers(const ModelConfig& config,
                                           const std::function<bool(int64_t)>& rule);

// Which layers rotate queries and keys: by no_rope_layers, which has a 1 for each that does,
// otherwise all but every no_rope_layer_interval-th.
Expected<std::vector<bool>> rotating_layers(const ModelConfig& config);

// Which layers have experts, in the families of Qwen: every decoder_sparse_step-th, without
// mlp_only_layers.
Expected<std::vector<bool>> sparse_layers(const ModelConfig& config);

// Sets the window and the rotation of a layer of either kind.
void set_layer_type(const ModelConfig& config, bool sliding, AttentionConfig& attention);

}  // namespace tw
