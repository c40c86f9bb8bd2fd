// The model families by the names that config.json gives in "architectures". Adding a family is
// one file in this folder and one row in registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "models/model.h"
#include "nn/loader.h"

namespace tw {

// Loads the checkpoint's model: packs its weights for this machine. Fails with unsupported for an
// unknown architecture (listing the known ones), and names the missing or misshapen tensor.
Expected<std::unique_ptr<Model>> load_model(const WeightLoader& loader);

// "LlamaForCausalLM", "MistralForCausalLM", ...
std::vector<std::string> known_architectures();

}  // namespace tw
