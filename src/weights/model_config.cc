#include "weights/model_config.h"

#include <algorithm>

#include "weights/config_fields.h"

namespace tw {
namespace {

constexpr int64_t kLarge = int64_t{1} << 31;

Expected<RopeConfig> parse_rope(const Json& config, const std::string& source) {
  ConfigFields top(config, source);
  const Json* nested = top.find("rope_parameters");
  if (nested == nullptr) nested = top.find("rope_scaling");
  static const Json kNone = Json::object();
  if (nested != nullptr && !nested->is_object()) {
    top.fail("rope_scaling", nested, "an object or null");
    return tl::unexpected(top.status().error());
  }
  const Json& parameters = nested == nullptr ? kNone : *nested;
  for (const auto& [key, value] : parameters.items()) {
    if (!value.is_object()) continue;
    return error(ErrorCode::unsupported,
                 "{}: rope parameters of their own for {}; only one rotation for all layers is "
                 "supported",
                 source, key);
  }
  ConfigFields fields(parameters, source + ": rope parameters");

  RopeConfig rope;
  rope.rope_theta =
      fields.number("rope_theta", 1, 1e12, top.number("rope_theta", 1, 1e12, 10000.0));
  rope.partial_rotary_factor =
      fields.number("partial_rotary_factor", 0, 1, top.number("partial_rotary_factor", 0, 1, 1.0));
  rope.rope_type = fields.string("rope_type", fields.string("type", "default"));
  // An older spelling.
  if (rope.rope_type == "su") rope.rope_type = "longrope";
  bool known = false;
  for (const char* type : {"default", "linear", "dynamic", "yarn", "llama3"}) {
    known = known || rope.rope_type == type;
  }
  if (!known) {
    return error(ErrorCode::unsupported,
                 "{}: rope type {} is not supported; known are default, linear, dynamic, yarn and "
                 "llama3",
                 source, rope.rope_type);
  }
  rope.factor = fields.number("factor", 1e-3, 1e6,
                              rope.rope_type == "default" ? std::optional(1.0) : std::nullopt);
  if (fields.find("original_max_position_embeddings") != nullptr) {
    rope.original_max_position_embeddings =
        fields.integer("original_max_position_embeddings", 1, kLarge);
  }
  rope.low_freq_factor = fields.number("low_freq_factor", 1e-3, 1e6, 1.0);
  rope.high_freq_factor = fields.number("high_freq_factor", 1e-3, 1e6, 4.0);
  rope.beta_fast = fields.number("beta_fast", 1e-3, 1e6, 32.0);
  rope.beta_slow = fields.number("beta_slow", 1e-3, 1e6, 1.0);
  rope.attention_factor = fields.optional_number("attention_factor", 1e-6, 1e6);
  rope.mscale = fields.optional_number("mscale", 0, 1e6);
  rope.mscale_all_dim = fields.optional_number("mscale_all_dim", 0, 1e6);
  rope.truncate = fields.boolean("truncate", true);
  if (!top.status()) return tl::unexpected(top.status().error());
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return rope;
}

std::vector<int32_t> token_ids(ConfigFields& fields, const char* field) {
  std::vector<int32_t> ids;
  const Json* value = fields.find(field);
  if (value == nullptr) return ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kLarge) {
      fields.fail(field, value, "a token id or a list of them");
      return {};
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// transformers 5 lists what each layer attends to. All layers alike is what is supported; layers
// that all see everything switch the window off.
Status check_layer_types(const ConfigFields& fields, const std::string& source,
                         int32_t& sliding_window) {
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return {};
  const bool alike =
      types->is_array() && !types->empty() &&
      std::all_of(types->begin(), types->end(), [&](const Json& t) { return t == types->front(); });
  if (alike && types->front() == "sliding_attention" && sliding_window > 0) return {};
  if (alike && types->front() == "full_attention") {
    sliding_window = 0;
    return {};
  }
  return error(ErrorCode::unsupported,
               "{}: field layer_types is {}; expected full_attention for all layers, or "
               "sliding_attention for all with a sliding_window",
               source, dump_json(*types).substr(0, 80));
}

}  // namespace

std::vector<std::string> ModelConfig::architectures_of(const Json& config) {
  std::vector<std::string> names;
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array()) return names;
  for (const Json& name : *found) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

Expected<ModelConfig> ModelConfig::parse(const Json& json, const std::string& source) {
  ConfigFields fields(json, source);
  ModelConfig config;
  config.architectures = architectures_of(json);
  config.model_type = fields.string("model_type", "");
  config.hidden_size = fields.integer("hidden_size", 1, 1 << 20);
  config.intermediate_size = fields.integer("intermediate_size", 1, 1 << 24);
  config.num_hidden_layers = fields.integer("num_hidden_layers", 1, 4096);
  config.num_attention_heads =
      static_cast<int32_t>(fields.integer("num_attention_heads", 1, 1 << 16));
  config.num_key_value_heads = static_cast<int32_t>(
      fields.integer("num_key_value_heads", 1, 1 << 16, config.num_attention_heads));
  config.vocab_size = fields.integer("vocab_size", 1, 1 << 24);
  config.max_position_embeddings = fields.integer("max_position_embeddings", 1, 1 << 28, 2048);
  config.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  config.hidden_act = fields.string("hidden_act", "silu");
  config.attention_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.sliding_window = static_cast<int32_t>(fields.integer("sliding_window", 0, 1 << 28, 0));
  if (Status status = check_layer_types(fields, source, config.sliding_window); !status) {
    return forward_error(status);
  }
  config.eos_token_ids = token_ids(fields, "eos_token_id");
  if (fields.find("head_dim") != nullptr) {
    config.head_dim = static_cast<int32_t>(fields.integer("head_dim", 1, 1 << 16));
  } else if (config.hidden_size % config.num_attention_heads == 0) {
    config.head_dim = static_cast<int32_t>(config.hidden_size / config.num_attention_heads);
  } else if (fields.status()) {
    return error(ErrorCode::corrupt_data,
                 "{}: hidden_size {} is no multiple of num_attention_heads {} and there is no "
                 "head_dim",
                 source, config.hidden_size, config.num_attention_heads);
  }
  if (!fields.status()) return tl::unexpected(fields.status().error());
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return error(ErrorCode::corrupt_data,
                 "{}: num_attention_heads {} is no multiple of num_key_value_heads {}", source,
                 config.num_attention_heads, config.num_key_value_heads);
  }
  auto rope = parse_rope(json, source);
  if (!rope) return forward_error(rope);
  config.rope = std::move(*rope);
  return config;
}

}  // namespace tw
