// The Llama family: Llama 2 and 3.x, SmolLM2, and Mistral with its sliding window.
//
// Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); Jiang et al.,
// "Mistral 7B" (2023). Pre-norm decoder layers of grouped-query attention with rotary positions
// and a SiLU-gated feed-forward network.
#pragma once

#include <memory>

#include "core/status.h"
#include "models/model.h"
#include "nn/loader.h"
#include "weights/model_config.h"

namespace tw {

Expected<std::unique_ptr<Model>> load_llama(const WeightLoader& loader, const ModelConfig& config);

}  // namespace tw
