// OLMo 2 and 3.
//
// OLMo Team, "2 OLMo 2 Furious" (2025). Norms stand behind the blocks instead of before them, and
// queries and keys are normalized over their whole width. OLMo 3 adds a window on three of four
// layers, and scales the rotation of the others only.
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_layers(const WeightLoader& loader, const ModelConfig& config,
                                             const std::vector<bool>& sliding) {
  AttentionConfig attention = AttentionConfig::from(config);
  attention.qk_norm = QkNormKind::projection;
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, sliding[static_cast<size_t>(i)], attention);
    decoder.attention(i, {.before = "", .after = "post_attention_layernorm"}, attention);
    decoder.gated_ffn(i, {.before = "", .after = "post_feedforward_layernorm"}, ffn);
  }
  return decoder.finish();
}

Expected<std::unique_ptr<Model>> load_olmo2(const WeightLoader& loader, const ModelConfig& config) {
  return load_layers(loader, config,
                     std::vector<bool>(static_cast<size_t>(config.num_hidden_layers), false));
}

Expected<std::unique_ptr<Model>> load_olmo3(const WeightLoader& loader, const ModelConfig& given) {
  ModelConfig config = given;
  if (!config.sliding_rope) {
    config.sliding_rope.emplace();
    config.sliding_rope->rope_theta = config.rope.rope_theta;
  }
  auto sliding = sliding_layers(config, [](int64_t i) { return (i + 1) % 4 != 0; });
  if (!sliding) return forward_error(sliding);
  return load_layers(loader, config, *sliding);
}

constexpr Family kFamilies[] = {
    {"Olmo2ForCausalLM", load_olmo2, R"({"rms_norm_eps": 1e-5})"},
    {"Olmo3ForCausalLM", load_olmo3,
     R"({"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "sliding_window": 4096})"},
};

}  // namespace

std::span<const Family> olmo_families() {
  return kFamilies;
}

}  // namespace tw
