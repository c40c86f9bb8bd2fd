// Mixtral: Mistral's layers with a mixture of eight experts in each (Jiang et al., "Mixtral of
// Experts", 2024). Two of them compute a token, weighted by the softmax over their logits.
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_mixtral(const WeightLoader& loader,
                                              const ModelConfig& config) {
  auto sliding = sliding_layers(config, [&](int64_t) { return config.sliding_window > 0; });
  if (!sliding) return forward_error(sliding);
  AttentionConfig attention = AttentionConfig::from(config);
  auto moe = MoeConfig::from(config);
  if (!moe) return forward_error(moe);
  // The softmax over all experts, renormalized, is that over the chosen ones.
  moe->router.renormalize = true;
  moe->experts.gate_name = "w1";
  moe->experts.up_name = "w3";
  moe->experts.down_name = "w2";

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    set_layer_type(config, (*sliding)[static_cast<size_t>(i)], attention);
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.moe(i, {.before = "post_attention_layernorm", .after = ""}, *moe, "block_sparse_moe");
  }
  return decoder.finish();
}

constexpr Family kFamilies[] = {
    {"MixtralForCausalLM", load_mixtral,
     R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
         "max_position_embeddings": 131072, "num_experts_per_tok": 2, "num_local_experts": 8})"},
};

}  // namespace

std::span<const Family> mixtral_families() {
  return kFamilies;
}

}  // namespace tw
