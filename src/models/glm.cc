// GLM-4, dense: "glm" (GLM-4-9B) and "glm4" (GLM-4-0414, with norms behind the blocks as well).
//
// Team GLM, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4" (2024). The first
// half of each head is rotated, by neighbouring pairs; gate and up lie in one tensor.
#include "models/decoder.h"
#include "models/families.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_layers(const WeightLoader& loader, const ModelConfig& config,
                                             const BlockNorms& attention_norms,
                                             const BlockNorms& ffn_norms) {
  AttentionConfig attention = AttentionConfig::from(config);
  attention.output_bias = false;
  attention.interleaved_rope = true;
  GatedFfnConfig ffn = GatedFfnConfig::from(config);
  ffn.gate_up_names = {"gate_up_proj"};

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    decoder.attention(i, attention_norms, attention);
    decoder.gated_ffn(i, ffn_norms, ffn);
  }
  return decoder.finish();
}

Expected<std::unique_ptr<Model>> load_glm(const WeightLoader& loader, const ModelConfig& config) {
  return load_layers(loader, config, {.before = "input_layernorm", .after = ""},
                     {.before = "post_attention_layernorm", .after = ""});
}

Expected<std::unique_ptr<Model>> load_glm4(const WeightLoader& loader, const ModelConfig& config) {
  return load_layers(loader, config,
                     {.before = "input_layernorm", .after = "post_self_attn_layernorm"},
                     {.before = "post_attention_layernorm", .after = "post_mlp_layernorm"});
}

constexpr const char* kDefaults =
    R"({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": true,
        "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-7,
        "max_position_embeddings": 131072})";

constexpr Family kFamilies[] = {
    {"GlmForCausalLM", load_glm, kDefaults},
    {"Glm4ForCausalLM", load_glm4, kDefaults},
};

}  // namespace

std::span<const Family> glm_families() {
  return kFamilies;
}

}  // namespace tw
