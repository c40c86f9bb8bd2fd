// Gemma 1, 2 and 3, and the language model of Gemma 3's multimodal checkpoints.
//
// Gemma Team, "Gemma" (2024), "Gemma 2" (2024), "Gemma 3 Technical Report" (2025). Embeddings are
// scaled by sqrt(hidden_size), the weights of norms are stored minus one, the gate is GELU. Gemma 2
// adds norms behind the blocks, soft caps on scores and logits, and a window on every second layer;
// Gemma 3 has norms of queries and keys instead of the caps, and rotates layers with a window by
// frequencies of their own.
#include <cmath>

#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

struct GemmaOptions {
  DecoderOptions decoder;
  AttentionConfig attention;
  GatedFfnConfig ffn;
  BlockNorms attention_norms;
  BlockNorms ffn_norms;
};

// What all three have in common.
Expected<GemmaOptions> gemma_options(const ModelConfig& config) {
  ConfigFields fields = config.fields();
  GemmaOptions options;
  options.decoder.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  // GGUF's converters add the one.
  options.decoder.norm_weight_offset =
      static_cast<float>(fields.number("norm_weight_offset", 0, 1, 1));
  options.attention = AttentionConfig::from(config);
  options.attention.norm_weight_offset = options.decoder.norm_weight_offset;
  options.ffn = GatedFfnConfig::from(config);
  options.ffn.hidden_act =
      fields.string("hidden_activation", fields.string("hidden_act", "gelu_pytorch_tanh"));
  options.attention_norms = {.before = "input_layernorm", .after = ""};
  options.ffn_norms = {.before = "post_attention_layernorm", .after = ""};
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return options;
}

// What Gemma 2 and 3 have in common.
Expected<GemmaOptions> gemma2_options(const ModelConfig& config) {
  auto options = gemma_options(config);
  if (!options) return options;
  ConfigFields fields = config.fields();
  const double scalar = fields.number("query_pre_attn_scalar", 1e-3, 1e6, 256);
  options->attention.scale = static_cast<float>(1 / std::sqrt(scalar));
  options->attention.soft_cap =
      static_cast<float>(fields.optional_number("attn_logit_softcapping", 1e-3, 1e6).value_or(0));
  options->decoder.logit_soft_cap =
      static_cast<float>(fields.optional_number("final_logit_softcapping", 1e-3, 1e6).value_or(0));
  options->attention_norms = {.before = "input_layernorm", .after = "post_attention_layernorm"};
  options->ffn_norms = {.before = "pre_feedforward_layernorm",
                        .after = "post_feedforward_layernorm"};
  if (fields.boolean("use_bidirectional_attention", false)) {
    return error(ErrorCode::unsupported,
                 "{}: use_bidirectional_attention is true; only causal attention is supported",
                 config.source);
  }
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return options;
}

Expected<std::unique_ptr<Model>> load_layers(const WeightLoader& loader, const ModelConfig& config,
                                             GemmaOptions& options,
                                             const std::vector<bool>& sliding) {
  DecoderLoader decoder(loader, config, options.decoder);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, sliding[static_cast<size_t>(i)], options.attention);
    decoder.attention(i, options.attention_norms, options.attention);
    decoder.gated_ffn(i, options.ffn_norms, options.ffn);
  }
  return decoder.finish();
}

Expected<std::unique_ptr<Model>> load_gemma(const WeightLoader& loader, const ModelConfig& config) {
  auto options = gemma_options(config);
  if (!options) return forward_error(options);
  // The first release's name for what it computes.
  if (options->ffn.hidden_act == "gelu") options->ffn.hidden_act = "gelu_pytorch_tanh";
  const std::vector<bool> sliding(static_cast<size_t>(config.num_hidden_layers), false);
  return load_layers(loader, config, *options, sliding);
}

Expected<std::unique_ptr<Model>> load_gemma2(const WeightLoader& loader,
                                             const ModelConfig& config) {
  auto options = gemma2_options(config);
  if (!options) return forward_error(options);
  auto sliding = sliding_layers(config, [](int64_t i) { return i % 2 == 0; });
  if (!sliding) return forward_error(sliding);
  return load_layers(loader, config, *options, *sliding);
}

Expected<std::unique_ptr<Model>> load_gemma3(const WeightLoader& loader, const ModelConfig& given) {
  ModelConfig config = given;
  auto options = gemma2_options(config);
  if (!options) return forward_error(options);
  options->attention.qk_norm = QkNormKind::per_head;
  ConfigFields fields = config.fields();
  if (!config.sliding_rope) {
    config.sliding_rope.emplace();
    config.sliding_rope->rope_theta = fields.number("rope_local_base_freq", 1, 1e12, 1e4);
  }
  const int64_t pattern = fields.integer("sliding_window_pattern", 1, 4096, 6);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  auto sliding = sliding_layers(config, [&](int64_t i) { return (i + 1) % pattern != 0; });
  if (!sliding) return forward_error(sliding);
  return load_layers(loader, config, *options, *sliding);
}

constexpr const char* kGemmaDefaults =
    R"({"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": true,
        "max_position_embeddings": 8192})";
constexpr const char* kGemma2Defaults =
    R"({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "tie_word_embeddings": true, "max_position_embeddings": 8192, "sliding_window": 4096,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})";
constexpr const char* kGemma3Defaults =
    R"({"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
        "tie_word_embeddings": true, "max_position_embeddings": 131072, "sliding_window": 4096,
        "rope_theta": 1000000.0})";

constexpr Family kFamilies[] = {
    {"GemmaForCausalLM", load_gemma, kGemmaDefaults},
    {"Gemma2ForCausalLM", load_gemma2, kGemma2Defaults},
    {"Gemma3ForCausalLM", load_gemma3, kGemma3Defaults},
    {"Gemma3ForConditionalGeneration", load_gemma3, kGemma3Defaults},
};

}  // namespace

std::span<const Family> gemma_families() {
  return kFamilies;
}

}  // namespace tw
