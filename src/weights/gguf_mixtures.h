// What the metadata of mixtures of experts says beyond the fields that all models have; see
// GgufArchitecture::complete.
#pragma once

#include "core/json.h"
#include "weights/gguf_architectures.h"

namespace tw {

void complete_mixtral(const GgufModel& model, Json& config);
void complete_qwen2_moe(const GgufModel& model, Json& config);
void complete_qwen3_moe(const GgufModel& model, Json& config);
// DeepSeek-V2, V3, and what is built like them.
void complete_deepseek(const GgufModel& model, Json& config);
void complete_glm4_moe(const GgufModel& model, Json& config);
void complete_gpt_oss(const GgufModel& model, Json& config);

}  // namespace tw
