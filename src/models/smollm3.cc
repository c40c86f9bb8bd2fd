// SmolLM3: Llama's layers, every fourth of them without positions (Yang et al., "RoPE to NoPE and
// Back Again", 2025).
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_smollm3(const WeightLoader& loader,
                                              const ModelConfig& config) {
  auto rotating = rotating_layers(config);
  if (!rotating) return forward_error(rotating);
  ConfigFields fields = config.fields();
  const bool use_window = fields.boolean("use_sliding_window", false) && config.sliding_window > 0;
  if (!fields.status()) return tl::unexpected(fields.status().error());
  auto sliding = sliding_layers(
      config, [&](int64_t i) { return use_window && !(*rotating)[static_cast<size_t>(i)]; });
  if (!sliding) return forward_error(sliding);
  AttentionConfig attention = AttentionConfig::from(config);
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, (*sliding)[static_cast<size_t>(i)], attention);
    if (!(*rotating)[static_cast<size_t>(i)]) attention.rope.reset();
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.gated_ffn(i, {.before = "post_attention_layernorm", .after = ""}, ffn);
  }
  return decoder.finish();
}

constexpr Family kFamilies[] = {
    {"SmolLM3ForCausalLM", load_smollm3,
     R"({"num_key_value_heads": 4, "tie_word_embeddings": true, "rope_theta": 2000000.0,
         "max_position_embeddings": 32768})"},
};

}  // namespace

std::span<const Family> smollm3_families() {
  return kFamilies;
}

}  // namespace tw
