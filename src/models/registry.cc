#include "models/registry.h"

#include <fmt/ranges.h>

#include "models/llama.h"
#include "weights/model_config.h"

namespace tw {
namespace {

struct Family {
  const char* architecture;
  Expected<std::unique_ptr<Model>> (*load)(const WeightLoader& loader, const ModelConfig& config);
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", load_llama},
    {"MistralForCausalLM", load_llama},
};

}  // namespace

Expected<std::unique_ptr<Model>> load_model(const WeightLoader& loader) {
  const std::string source = loader.checkpoint.path().string();
  auto config = ModelConfig::parse(loader.checkpoint.config(), source);
  if (!config) return forward_error(config);
  for (const Family& family : kFamilies) {
    for (const std::string& name : config->architectures) {
      if (name == family.architecture) return family.load(loader, *config);
    }
  }
  return error(ErrorCode::unsupported, "{}: unknown architecture [{}]; known ones: {}", source,
               fmt::join(config->architectures, ", "), fmt::join(known_architectures(), ", "));
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.architecture);
  return names;
}

}  // namespace tw
