// Qwen 2, 2.5 and 3, dense.
//
// Yang et al., "Qwen2 Technical Report" (2024), "Qwen3 Technical Report" (2025). Llama's layers.
// Qwen 2 has biases on queries, keys and values; Qwen 3 normalizes each head of queries and keys
// instead. The last layers may attend to a window, which released models leave switched off.
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_qwen(const WeightLoader& loader, const ModelConfig& config,
                                           AttentionConfig attention) {
  ConfigFields fields = config.fields();
  const bool use_window = fields.boolean("use_sliding_window", false);
  const int64_t first_with_window = fields.integer("max_window_layers", 0, 4096, 28);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  auto sliding =
      sliding_layers(config, [&](int64_t i) { return use_window && i >= first_with_window; });
  if (!sliding) return forward_error(sliding);
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, (*sliding)[static_cast<size_t>(i)], attention);
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.gated_ffn(i, {.before = "post_attention_layernorm", .after = ""}, ffn);
  }
  return decoder.finish();
}

Expected<std::unique_ptr<Model>> load_qwen2(const WeightLoader& loader, const ModelConfig& config) {
  AttentionConfig attention = AttentionConfig::from(config);
  attention.qkv_bias = true;
  attention.output_bias = false;
  return load_qwen(loader, config, attention);
}

Expected<std::unique_ptr<Model>> load_qwen3(const WeightLoader& loader, const ModelConfig& config) {
  AttentionConfig attention = AttentionConfig::from(config);
  attention.qk_norm = QkNormKind::per_head;
  return load_qwen(loader, config, attention);
}

constexpr Family kFamilies[] = {
    {"Qwen2ForCausalLM", load_qwen2, R"({"sliding_window": 4096})"},
    {"Qwen3ForCausalLM", load_qwen3, R"({"sliding_window": 4096, "head_dim": 128})"},
};

}  // namespace

std::span<const Family> qwen_families() {
  return kFamilies;
}

}  // namespace tw
