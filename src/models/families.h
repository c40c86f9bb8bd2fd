// The model families, a file each. A family builds its decoder (models/decoder.h) from the common
// fields of config.json and reads those of its own from loader.checkpoint.config().
#pragma once

#include <memory>

#include "core/status.h"
#include "models/model.h"
#include "nn/loader.h"
#include "weights/model_config.h"

namespace tw {

Expected<std::unique_ptr<Model>> load_llama(const WeightLoader& loader, const ModelConfig& config);

}  // namespace tw
