#include "weights/lora_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/text_file.h"
#include "weights/config_fields.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxRank = 4096;
constexpr double kMaxAlpha = 1e6;

Expected<Json> read_config(const fs::path& path) {
  const auto text = read_text_file(path);
  if (!text) {
    return error(ErrorCode::not_found,
                 "{}: cannot open; an adapter is a folder with adapter_config.json and "
                 "adapter_model.safetensors",
                 path.string());
  }
  auto config = parse_json(*text, path.string());
  if (!config) return error(ErrorCode::corrupt_data, "{}", config.error().message);
  if (!config->is_object()) {
    return error(ErrorCode::corrupt_data, "{}: expected a JSON object", path.string());
  }
  return config;
}

bool is_set(const Json& value) {
  return !value.is_null() && value != false && !(value.is_structured() && value.empty());
}

// Variants of the method that change what is computed.
Status check_kind(const Json& config, const std::string& source) {
  const auto refuse = [&](const char* field, const char* expected) {
    return error(ErrorCode::unsupported, "{}: {} is {}; only {} is computed", source, field,
                 dump_json(config[field]), expected);
  };
  if (config.value("peft_type", Json("LORA")) != "LORA") return refuse("peft_type", "\"LORA\"");
  if (config.value("bias", Json("none")) != "none") return refuse("bias", "\"none\"");
  for (const char* field : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) {
    if (is_set(config.value(field, Json()))) return refuse(field, "false");
  }
  for (const char* field : {"modules_to_save", "trainable_token_indices", "target_parameters"}) {
    if (is_set(config.value(field, Json()))) return refuse(field, "null");
  }
  return {};
}

// The name of the adapted layer, of "base_model.model.<layer>.lora_A.weight".
struct TensorName {
  std::string module;
  bool is_a = false;
};
std::optional<TensorName> parse_name(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const bool is_a : {true, false}) {
    const std::string_view suffix = is_a ? ".lora_A.weight" : ".lora_B.weight";
    if (!name.ends_with(suffix)) continue;
    return TensorName{std::string(name.substr(0, name.size() - suffix.size())), is_a};
  }
  return std::nullopt;
}

// What a pattern of PEFT says of a layer: the value of the name that the layer's own ends with.
// (There they may be regular expressions; such a name fits no layer and is refused as unknown.)
const Json* find_pattern(const Json& patterns, const std::string& module) {
  for (const auto& [name, value] : patterns.items()) {
    if (module == name || module.ends_with("." + name)) return &value;
  }
  return nullptr;
}

Status check_patterns(const Json& patterns, const std::map<std::string, LoraModule>& modules,
                      const std::string& source) {
  if (!patterns.is_object()) {
    return error(ErrorCode::corrupt_data, "{}: alpha_pattern is {}; it must be an object", source,
                 dump_json(patterns));
  }
  for (const auto& [name, value] : patterns.items()) {
    const bool is_number = value.is_number() && std::isfinite(value.get<double>());
    const bool fits = std::ranges::any_of(modules, [&](const auto& entry) {
      return entry.first == name || entry.first.ends_with("." + name);
    });
    if (is_number && fits) continue;
    return error(
        ErrorCode::unsupported,
        "{}: alpha_pattern[\"{}\"] is {}; names must be the ends of adapted layers' names, "
        "values numbers",
        source, name, dump_json(value));
  }
  return {};
}

}  // namespace

Expected<LoraCheckpoint> LoraCheckpoint::open(const fs::path& folder) {
  const fs::path config_path = folder / "adapter_config.json";
  auto config = read_config(config_path);
  if (!config) return forward_error(config);
  if (Status status = check_kind(*config, config_path.string()); !status) {
    return forward_error(status);
  }
  const fs::path weights = folder / "adapter_model.safetensors";
  auto file = SafetensorsFile::open(weights);
  if (!file) return forward_error(file);
  LoraCheckpoint checkpoint(folder, std::move(*file));
  if (Status status = checkpoint.read_tensors(weights); !status) return forward_error(status);
  if (Status status = checkpoint.read_scales(*config, config_path.string()); !status) {
    return forward_error(status);
  }
  return checkpoint;
}

Status LoraCheckpoint::read_tensors(const fs::path& weights) {
  for (const StoredTensor& tensor : file_.tensors()) {
    const auto name = parse_name(tensor.name);
    if (!name) {
      return error(ErrorCode::unsupported,
                   "{}: tensor {} is neither <layer>.lora_A.weight nor <layer>.lora_B.weight",
                   weights.string(), tensor.name);
    }
    if (tensor.shape.size() != 2 || !is_float(tensor.type)) {
      return error(ErrorCode::corrupt_data, "{}: tensor {} is no matrix of floats",
                   weights.string(), tensor.name);
    }
    LoraModule& module = modules_[name->module];
    (name->is_a ? module.a : module.b) = &tensor;
  }
  for (auto& [name, module] : modules_) {
    if (module.a == nullptr || module.b == nullptr) {
      return error(ErrorCode::corrupt_data, "{}: tensor {}.lora_{}.weight is missing",
                   weights.string(), name, module.a == nullptr ? 'A' : 'B');
    }
    module.rank = module.a->shape[0];
    if (module.rank < 1 || module.rank > kMaxRank || module.b->shape[1] != module.rank) {
      return error(
          ErrorCode::corrupt_data,
          "{}: {}.lora_A is [{}, {}] and lora_B [{}, {}]; A's rows and B's columns are the "
          "rank, 1 to {}",
          weights.string(), name, module.rank, module.a->shape[1], module.b->shape[0],
          module.b->shape[1], kMaxRank);
    }
  }
  if (modules_.empty()) {
    return error(ErrorCode::corrupt_data, "{}: holds no tensors", weights.string());
  }
  return {};
}

Status LoraCheckpoint::read_scales(const Json& config, const std::string& source) {
  ConfigFields fields(config, source);
  const int64_t rank = fields.integer("r", 1, kMaxRank);
  const double alpha = fields.number("lora_alpha", -kMaxAlpha, kMaxAlpha);
  const bool root = fields.boolean("use_rslora", false);
  if (Status status = fields.status(); !status) return status;
  const Json alphas = fields.has("alpha_pattern") ? config["alpha_pattern"] : Json::object();
  if (Status status = check_patterns(alphas, modules_, source); !status) return status;
  const bool one_rank = !is_set(config.value("rank_pattern", Json()));
  for (auto& [name, module] : modules_) {
    if (one_rank && module.rank != rank) {
      return error(ErrorCode::corrupt_data, "{}: r is {}, but {}.lora_A has {} rows", source, rank,
                   name, module.rank);
    }
    const Json* own = find_pattern(alphas, name);
    const auto divisor = static_cast<double>(module.rank);
    module.scale = static_cast<float>((own != nullptr ? own->get<double>() : alpha) /
                                      (root ? std::sqrt(divisor) : divisor));
  }
  return {};
}

int64_t LoraCheckpoint::max_rank() const {
  int64_t rank = 0;
  for (const auto& [name, module] : modules_) rank = std::max(rank, module.rank);
  return rank;
}

}  // namespace tw
