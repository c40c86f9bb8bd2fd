// gpt-oss: attention with a learned sink per head, a window on every second layer, and experts with
// a clamped gate, biases, and weights in MXFP4 (OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card",
// 2025).
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<MoeConfig> gpt_oss_moe(const ModelConfig& config) {
  auto moe = MoeConfig::from(config);
  if (!moe) return moe;
  ConfigFields fields = config.fields();
  // The softmax over the chosen experts' logits is that over all, renormalized.
  moe->router.renormalize = true;
  moe->router_name = "router";
  moe->router_bias = true;
  moe->experts.has_bias = true;
  moe->experts.is_transposed = true;
  moe->experts.is_interleaved = true;
  moe->clamped_swiglu.emplace();
  moe->clamped_swiglu->alpha = static_cast<float>(fields.number("swiglu_alpha", 0, 1e3, 1.702));
  moe->clamped_swiglu->limit = static_cast<float>(fields.number("swiglu_limit", 1e-3, 1e6, 7.0));
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return moe;
}

Expected<std::unique_ptr<Model>> load_gpt_oss(const WeightLoader& loader,
                                              const ModelConfig& config) {
  auto sliding = sliding_layers(config, [](int64_t i) { return i % 2 == 0; });
  if (!sliding) return forward_error(sliding);
  auto moe = gpt_oss_moe(config);
  if (!moe) return forward_error(moe);
  AttentionConfig attention = AttentionConfig::from(config);
  attention.sinks_name = "sinks";

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, (*sliding)[static_cast<size_t>(i)], attention);
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.moe(i, {.before = "post_attention_layernorm", .after = ""}, *moe);
  }
  return decoder.finish();
}

constexpr Family kFamilies[] = {
    {"GptOssForCausalLM", load_gpt_oss,
     R"({"num_key_value_heads": 8, "head_dim": 64, "attention_bias": true, "rms_norm_eps": 1e-5,
         "rope_theta": 150000.0, "max_position_embeddings": 131072, "sliding_window": 128,
         "num_local_experts": 128, "num_experts_per_tok": 4})"},
};

}  // namespace

std::span<const Family> gpt_oss_families() {
  return kFamilies;
}

}  // namespace tw
