// The model families, a file each. A family builds its decoder (models/decoder.h) from the common
// fields of config.json and reads those of its own from config.fields().
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/status.h"
#include "models/model.h"
#include "nn/loader.h"
#include "weights/model_config.h"

namespace tw {

struct Family {
  std::string_view architecture;  // as in config.json
  Expected<std::unique_ptr<Model>> (*load)(const WeightLoader& loader, const ModelConfig& config);
  // What config.json may leave out, as JSON: the defaults of Transformers' configuration class
  // where they are not ModelConfig's.
  std::string_view defaults = "{}";
};

std::span<const Family> deepseek_families();
std::span<const Family> gemma_families();
std::span<const Family> glm_families();
std::span<const Family> glm_moe_families();
std::span<const Family> gpt_oss_families();
std::span<const Family> llama_families();
std::span<const Family> llama4_families();
std::span<const Family> minimax_m2_families();
std::span<const Family> mixtral_families();
std::span<const Family> olmo_families();
std::span<const Family> phi_families();
std::span<const Family> qwen_families();
std::span<const Family> qwen_hybrid_families();
std::span<const Family> qwen_moe_families();
std::span<const Family> smollm3_families();

}  // namespace tw
