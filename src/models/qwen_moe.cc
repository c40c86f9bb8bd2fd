// Qwen 2 and 3 with mixtures of experts.
//
// Yang et al., "Qwen2 Technical Report" (2024), "Qwen3 Technical Report" (2025). The attention of
// the dense models; many small experts, of which released models choose 4 of 60 (Qwen 2, beside a
// shared expert weighted by a gate of its own) or 8 of 128 (Qwen 3).
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_layers(const WeightLoader& loader, const ModelConfig& config,
                                             AttentionConfig attention, MoeConfig moe,
                                             const std::function<bool(int64_t)>& slides) {
  ConfigFields fields = config.fields();
  moe.router.renormalize = fields.boolean("norm_topk_prob", false);
  const bool use_window = fields.boolean("use_sliding_window", false);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  auto sliding = sliding_layers(config, [&](int64_t i) { return use_window && slides(i); });
  if (!sliding) return forward_error(sliding);
  auto sparse = sparse_layers(config);
  if (!sparse) return forward_error(sparse);
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);
  const BlockNorms ffn_norms{.before = "post_attention_layernorm", .after = ""};

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, (*sliding)[static_cast<size_t>(i)], attention);
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    if ((*sparse)[static_cast<size_t>(i)]) {
      decoder.moe(i, ffn_norms, moe);
    } else {
      decoder.gated_ffn(i, ffn_norms, ffn);
    }
  }
  return decoder.finish();
}

Expected<std::unique_ptr<Model>> load_qwen2_moe(const WeightLoader& loader,
                                                const ModelConfig& config) {
  ConfigFields fields = config.fields();
  AttentionConfig attention = AttentionConfig::from(config);
  attention.qkv_bias = fields.boolean("qkv_bias", true);
  attention.output_bias = false;
  auto moe = MoeConfig::from(config);
  if (!moe) return forward_error(moe);
  moe->shared_intermediate_size = fields.integer("shared_expert_intermediate_size", 1, 1 << 24);
  moe->shared_name = "shared_expert";
  moe->shared_gate_name = "shared_expert_gate";
  const int64_t windows = fields.integer("max_window_layers", 0, 4096, 28);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return load_layers(loader, config, attention, *moe,
                     [&](int64_t i) { return i % 2 == 0 && i < windows; });
}

Expected<std::unique_ptr<Model>> load_qwen3_moe(const WeightLoader& loader,
                                                const ModelConfig& config) {
  AttentionConfig attention = AttentionConfig::from(config);
  attention.qk_norm = QkNormKind::per_head;
  auto moe = MoeConfig::from(config);
  if (!moe) return forward_error(moe);
  return load_layers(loader, config, attention, *moe, [](int64_t) { return true; });
}

constexpr Family kFamilies[] = {
    {"Qwen2MoeForCausalLM", load_qwen2_moe,
     R"({"sliding_window": 4096, "max_position_embeddings": 32768, "num_experts": 60,
         "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
         "shared_expert_intermediate_size": 5632})"},
    {"Qwen3MoeForCausalLM", load_qwen3_moe,
     R"({"sliding_window": 4096, "num_key_value_heads": 4, "max_position_embeddings": 32768,
         "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768})"},
};

}  // namespace

std::span<const Family> qwen_moe_families() {
  return kFamilies;
}

}  // namespace tw
