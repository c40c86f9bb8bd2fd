// Phi-3, Phi-3.5 and Phi-4.
//
// Abdin et al., "Phi-3 Technical Report" (2024). Llama's layers with the projections of queries,
// keys and values in one tensor, gate and up in another; long contexts by LongRoPE; Phi-4-mini
// rotates a part of each head.
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_phi3(const WeightLoader& loader, const ModelConfig& config) {
  auto sliding = sliding_layers(config, [&](int64_t) { return config.sliding_window > 0; });
  if (!sliding) return forward_error(sliding);
  AttentionConfig attention = AttentionConfig::from(config);
  attention.qkv_names = {"qkv_proj"};
  GatedFfnConfig ffn = GatedFfnConfig::from(config);
  ffn.gate_up_names = {"gate_up_proj"};

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, (*sliding)[static_cast<size_t>(i)], attention);
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.gated_ffn(i, {.before = "post_attention_layernorm", .after = ""}, ffn);
  }
  return decoder.finish();
}

constexpr Family kFamilies[] = {
    {"Phi3ForCausalLM", load_phi3, R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 4096})"},
};

}  // namespace

std::span<const Family> phi_families() {
  return kFamilies;
}

}  // namespace tw
