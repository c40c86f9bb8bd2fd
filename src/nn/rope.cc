#include "nn/rope.h"

#include "core/check.h"

namespace tw {
namespace {

kernels::RopeType rope_type(const std::string& name) {
  if (name == "default") return kernels::RopeType::standard;
  if (name == "linear") return kernels::RopeType::linear;
  if (name == "dynamic") return kernels::RopeType::dynamic_ntk;
  if (name == "yarn") return kernels::RopeType::yarn;
  if (name == "llama3") return kernels::RopeType::llama3;
  if (name == "longrope") return kernels::RopeType::longrope;
  TW_CHECK(!"ModelConfig::parse lets no other rope type through");
  return kernels::RopeType::standard;
}

std::optional<float> narrow(const std::optional<double>& value) {
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

}  // namespace

kernels::RopeParameters rope_parameters(const ModelConfig& config, const RopeConfig& rope) {
  kernels::RopeParameters parameters;
  parameters.type = rope_type(rope.rope_type);
  parameters.theta = static_cast<float>(rope.rope_theta);
  parameters.head_dim = config.head_dim;
  parameters.partial_rotary_factor = static_cast<float>(rope.partial_rotary_factor);
  parameters.max_position_embeddings = config.max_position_embeddings;
  parameters.factor = static_cast<float>(rope.factor);
  parameters.original_max_position_embeddings = rope.original_max_position_embeddings.value_or(0);
  parameters.low_freq_factor = static_cast<float>(rope.low_freq_factor);
  parameters.high_freq_factor = static_cast<float>(rope.high_freq_factor);
  parameters.beta_fast = static_cast<float>(rope.beta_fast);
  parameters.beta_slow = static_cast<float>(rope.beta_slow);
  parameters.attention_factor = narrow(rope.attention_factor);
  parameters.mscale = narrow(rope.mscale);
  parameters.mscale_all_dim = narrow(rope.mscale_all_dim);
  parameters.truncate = rope.truncate;
  parameters.short_factor.assign(rope.short_factor.begin(), rope.short_factor.end());
  parameters.long_factor.assign(rope.long_factor.begin(), rope.long_factor.end());
  return parameters;
}

}  // namespace tw
