// The parameters of a decoder model, from config.json, checked once so that nobody else must.
// Field names are Hugging Face's; transformers' configuration classes are the source of defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "weights/config_fields.h"

namespace tw {

// rope_scaling and rope_theta, or (transformers 5) rope_parameters.
struct RopeConfig {
  std::string rope_type = "default";  // default, linear, dynamic, yarn, llama3, longrope
  double rope_theta = 10000.0;
  double partial_rotary_factor = 1.0;
  double factor = 1.0;
  std::optional<int64_t> original_max_position_embeddings;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> attention_factor;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  bool truncate = true;
  std::vector<double> short_factor, long_factor;  // longrope
};

// The fields that decoders share. A family reads what is its own from fields().
struct ModelConfig {
  Json json;           // all fields
  std::string source;  // stands before messages
  std::vector<std::string> architectures;
  std::string model_type;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int32_t num_attention_heads = 0;
  int32_t num_key_value_heads = 0;
  int32_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  std::string hidden_act = "silu";
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  int32_t sliding_window = 0;            // positions a token sees; 0: all
  std::vector<std::string> layer_types;  // what each layer attends to; empty if not given
  RopeConfig rope;                       // of all layers, or of those with full attention
  // Of layers with a window, where rope_parameters has some of their own.
  std::optional<RopeConfig> sliding_rope;
  std::vector<int32_t> eos_token_ids;

  // Fails with corrupt_data (or unsupported) naming the source, the field, the value found and
  // what is valid.
  static Expected<ModelConfig> parse(const Json& config, const std::string& source);

  ConfigFields fields() const { return {json, source}; }

  // The field "architectures" alone, for choosing a family before the rest is looked at.
  static std::vector<std::string> architectures_of(const Json& config);
};

}  // namespace tw
