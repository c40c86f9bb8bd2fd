#include "models/registry.h"

#include <fmt/ranges.h>

#include "models/families.h"
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
  const Json& json = loader.checkpoint.config();
  const std::vector<std::string> architectures = ModelConfig::architectures_of(json);
  for (const Family& family : kFamilies) {
    for (const std::string& name : architectures) {
      if (name != family.architecture) continue;
      auto config = ModelConfig::parse(json, source);
      if (!config) return forward_error(config);
      auto scheme = make_scheme(json, source);
      if (!scheme) return forward_error(scheme);
      WeightLoader with_scheme = loader;
      with_scheme.scheme = scheme->get();
      return family.load(with_scheme, *config);
    }
  }
  return error(ErrorCode::unsupported, "{}: unknown architecture [{}]; known ones: {}", source,
               fmt::join(architectures, ", "), fmt::join(known_architectures(), ", "));
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.architecture);
  return names;
}

}  // namespace tw
