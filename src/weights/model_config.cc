#include "weights/model_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace tw {
namespace {

constexpr int64_t kLarge = int64_t{1} << 31;

constexpr const char* kRopeTypes[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};

// `parameters`: the object of one rotation; `top`: the whole configuration, for what older ones
// have outside of it.
Expected<RopeConfig> parse_rope(const Json& parameters, ConfigFields& top) {
  ConfigFields fields(parameters, top.source() + ": rope parameters");
  RopeConfig rope;
  rope.rope_theta =
      fields.number("rope_theta", 1, 1e12, top.number("rope_theta", 1, 1e12, 10000.0));
  rope.partial_rotary_factor =
      fields.number("partial_rotary_factor", 0, 1, top.number("partial_rotary_factor", 0, 1, 1.0));
  rope.rope_type = fields.string("rope_type", fields.string("type", "default"));
  if (rope.rope_type == "su") rope.rope_type = "longrope";  // an older spelling
  if (std::find(std::begin(kRopeTypes), std::end(kRopeTypes), rope.rope_type) ==
      std::end(kRopeTypes)) {
    return error(ErrorCode::unsupported, "{}: rope type {} is not supported; known are {}",
                 top.source(), rope.rope_type, fmt::join(kRopeTypes, ", "));
  }
  for (ConfigFields* place : {&fields, &top}) {
    if (place->has("original_max_position_embeddings")) {
      rope.original_max_position_embeddings =
          place->integer("original_max_position_embeddings", 1, kLarge);
    }
  }
  const bool is_longrope = rope.rope_type == "longrope";
  std::optional<double> default_factor;
  if (rope.rope_type == "default") default_factor = 1.0;
  if (is_longrope && rope.original_max_position_embeddings) {
    const int64_t longest = top.integer("max_position_embeddings", 1, kLarge, kLarge);
    const auto original = static_cast<double>(*rope.original_max_position_embeddings);
    default_factor = std::max(1.0, static_cast<double>(longest) / original);
  }
  rope.factor = fields.number("factor", 1e-3, 1e6, default_factor);
  rope.low_freq_factor = fields.number("low_freq_factor", 1e-3, 1e6, 1.0);
  rope.high_freq_factor = fields.number("high_freq_factor", 1e-3, 1e6, 4.0);
  rope.beta_fast = fields.number("beta_fast", 1e-3, 1e6, 32.0);
  rope.beta_slow = fields.number("beta_slow", 1e-3, 1e6, 1.0);
  rope.attention_factor = fields.optional_number("attention_factor", 1e-6, 1e6);
  rope.mscale = fields.optional_number("mscale", 0, 1e6);
  rope.mscale_all_dim = fields.optional_number("mscale_all_dim", 0, 1e6);
  rope.truncate = fields.boolean("truncate", true);
  if (is_longrope) {
    rope.short_factor = fields.numbers("short_factor", 1e-6, 1e6);
    rope.long_factor = fields.numbers("long_factor", 1e-6, 1e6);
  }
  if (!top.status()) return tl::unexpected(top.status().error());
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return rope;
}

// rope_parameters (or rope_scaling): one rotation, or one per type of layer.
Status parse_ropes(const Json& json, const std::string& source, ModelConfig& config) {
  ConfigFields top(json, source);
  const Json* nested = top.find("rope_parameters");
  if (nested == nullptr) nested = top.find("rope_scaling");
  static const Json kNone = Json::object();
  if (nested != nullptr && !nested->is_object()) {
    top.fail("rope_scaling", nested, "an object or null");
    return top.status();
  }
  const Json& parameters = nested == nullptr ? kNone : *nested;
  const Json* of_full_layers = &parameters;
  for (const auto& [key, value] : parameters.items()) {
    if (!value.is_object()) continue;
    if (key == "full_attention") {
      of_full_layers = &value;
    } else if (key == "sliding_attention") {
      auto rope = parse_rope(value, top);
      if (!rope) return forward_error(rope);
      config.sliding_rope = std::move(*rope);
    } else {
      return error(ErrorCode::unsupported,
                   "{}: rope parameters for {}; known are full_attention and sliding_attention",
                   source, key);
    }
  }
  auto rope = parse_rope(*of_full_layers, top);
  if (!rope) return forward_error(rope);
  config.rope = std::move(*rope);
  return {};
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
  config.json = json;
  config.source = source;
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
  config.layer_types = fields.strings("layer_types");
  if (!config.layer_types.empty() &&
      static_cast<int64_t>(config.layer_types.size()) != config.num_hidden_layers) {
    fields.fail("layer_types", fields.find("layer_types"),
                fmt::format("a list of num_hidden_layers = {}", config.num_hidden_layers));
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
  if (Status status = parse_ropes(json, source, config); !status) return forward_error(status);
  return config;
}

}  // namespace tw
