#include "models/registry.h"

#include <fmt/ranges.h>

#include "core/check.h"
#include "models/families.h"
#include "nn/lora_adapter.h"
#include "weights/model_config.h"
#include "weights/quantize/quantizing_scheme.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

std::vector<Family> all_families() {
  std::vector<Family> all;
  for (const auto families :
       {deepseek_families(), gemma_families(), glm_families(), glm_moe_families(),
        gpt_oss_families(), llama_families(), llama4_families(), minimax_m2_families(),
        mixtral_families(), olmo_families(), phi_families(), qwen_families(),
        qwen_hybrid_families(), qwen_moe_families(), smollm3_families()}) {
    all.insert(all.end(), families.begin(), families.end());
  }
  return all;
}

// The family's defaults under what config.json says. The language model of a multimodal checkpoint
// has its fields in text_config.
Json complete_config(const Json& json, const Family& family) {
  auto config = parse_json(family.defaults, "defaults");
  TW_CHECK(config);
  if (const auto text = json.find("text_config"); text != json.end() && text->is_object()) {
    config->update(*text);
    for (const char* field : {"architectures", "eos_token_id", "quantization_config"}) {
      if (json.contains(field)) (*config)[field] = json[field];
    }
  } else if (json.is_object()) {
    config->update(json);
  }
  return std::move(*config);
}

// Loads without packing: what is missing or wrong in any layer is said before memory is taken and
// minutes are spent on those before it. Quantization at load would be done twice; there the tensors
// it reads are checked.
Status check(const Family& family, const WeightLoader& loader, const ModelConfig& config) {
  const auto plain = make_plain_scheme();
  WeightLoader checks = loader;
  checks.checks_only = true;
  checks.on_progress = nullptr;
  checks.lora = nullptr;
  if (loader.quantization) checks.scheme = plain.get();
  auto checked = family.load(checks, config);
  if (!checked) return forward_error(checked);
  return {};
}

}  // namespace

Expected<std::unique_ptr<Model>> load_model(const WeightLoader& loader) {
  const std::string source = loader.checkpoint.path().string();
  const Json& json = loader.checkpoint.config();
  const std::vector<std::string> architectures = ModelConfig::architectures_of(json);
  for (const Family& family : all_families()) {
    for (const std::string& name : architectures) {
      if (name != family.architecture) continue;
      auto config = ModelConfig::parse(complete_config(json, family), source);
      if (!config) return forward_error(config);
      auto scheme = loader.quantization ? make_quantizing_scheme(loader.checkpoint,
                                                                 *loader.quantization, loader.team)
                                        : make_scheme(json, source);
      if (!scheme) return forward_error(scheme);
      WeightLoader with_scheme = loader;
      with_scheme.scheme = scheme->get();
      if (loader.max_lora_rank > 0) {
        with_scheme.lora =
            std::make_shared<LoraLayers>(loader.features, loader.max_lora_rank, loader.shard.rank);
      }
      if (Status status = check(family, with_scheme, *config); !status) {
        return forward_error(status);
      }
      return family.load(with_scheme, *config);
    }
  }
  return error(ErrorCode::unsupported, "{}: unknown architecture [{}]; known ones: {}", source,
               fmt::join(architectures, ", "), fmt::join(known_architectures(), ", "));
}

Expected<LoraAdapter> Model::load_adapter(const LoraCheckpoint& checkpoint) const {
  return error(ErrorCode::unsupported, "{}: the model was loaded without adapters (--enable-lora)",
               checkpoint.path().string());
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family& family : all_families()) names.emplace_back(family.architecture);
  return names;
}

}  // namespace tw
