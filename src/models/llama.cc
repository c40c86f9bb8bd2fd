// Llama 2 and 3.x, SmolLM2, and Mistral and Ministral with their sliding windows.
//
// Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); Jiang et al.,
// "Mistral 7B" (2023). Pre-norm layers of grouped-query attention with rotary positions and a
// SiLU-gated feed-forward network.
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_llama(const WeightLoader& loader, const ModelConfig& config) {
  auto sliding = sliding_layers(config, [&](int64_t) { return config.sliding_window > 0; });
  if (!sliding) return forward_error(sliding);
  AttentionConfig attention = AttentionConfig::from(config);
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, (*sliding)[static_cast<size_t>(i)], attention);
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.gated_ffn(i, {.before = "post_attention_layernorm", .after = ""}, ffn);
  }
  return decoder.finish();
}

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", load_llama},
    {"MistralForCausalLM", load_llama, R"({"num_key_value_heads": 8, "sliding_window": 4096})"},
    {"MinistralForCausalLM", load_llama, R"({"num_key_value_heads": 8, "sliding_window": 4096})"},
};

}  // namespace

std::span<const Family> llama_families() {
  return kFamilies;
}

}  // namespace tw
