// Llama 2 and 3.x, SmolLM2, and Mistral with its sliding window.
//
// Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); Jiang et al.,
// "Mistral 7B" (2023). Pre-norm layers of grouped-query attention with rotary positions and a
// SiLU-gated feed-forward network.
#include "models/decoder.h"
#include "models/families.h"

namespace tw {

Expected<std::unique_ptr<Model>> load_llama(const WeightLoader& loader, const ModelConfig& config) {
  AttentionConfig attention = AttentionConfig::from(config);
  attention.sliding_window = config.sliding_window;
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.gated_ffn(i, {.before = "post_attention_layernorm", .after = ""}, ffn);
  }
  return decoder.finish();
}

}  // namespace tw
