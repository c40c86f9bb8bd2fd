// MiniMax-M2: 256 experts chosen by sigmoid scores with a correction bias; queries and keys are
// normalized over all heads, and a part of each head is rotated.
#include "models/decoder.h"
#include "models/families.h"
#include "nn/rope.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_minimax_m2(const WeightLoader& loader,
                                                 const ModelConfig& config) {
  auto moe = MoeConfig::from(config);
  if (!moe) return forward_error(moe);
  moe->router.score = kernels::ExpertScore::sigmoid;
  moe->router.renormalize = true;
  moe->correction_bias_name = "e_score_correction_bias";
  moe->experts.gate_name = "w1";
  moe->experts.up_name = "w3";
  moe->experts.down_name = "w2";
  ConfigFields fields = config.fields();
  AttentionConfig attention = AttentionConfig::from(config);
  attention.qk_norm = QkNormKind::projection;
  RopeConfig rope = config.rope;
  if (fields.has("rotary_dim")) {
    const auto rotary_dim = static_cast<double>(fields.integer("rotary_dim", 2, config.head_dim));
    rope.partial_rotary_factor = rotary_dim / config.head_dim;
  }
  attention.rope = rope_parameters(config, rope);
  if (!fields.status()) return tl::unexpected(fields.status().error());

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, attention);
    decoder.moe(i, {.before = "post_attention_layernorm", .after = ""}, *moe, "block_sparse_moe");
  }
  return decoder.finish();
}

constexpr Family kFamilies[] = {
    {"MiniMaxM2ForCausalLM", load_minimax_m2,
     R"({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5000000.0,
         "max_position_embeddings": 196608, "num_local_experts": 256, "num_experts_per_tok": 8})"},
};

}  // namespace

std::span<const Family> minimax_m2_families() {
  return kFamilies;
}

}  // namespace tw
