#include "models/deepseek_layers.h"

namespace tw {
namespace {

Expected<MoeConfig> deepseek_moe(const ModelConfig& config) {
  auto moe = MoeConfig::from(config);
  if (!moe) return moe;
  ConfigFields fields = config.fields();
  kernels::RouterConfig& router = moe->router;
  const std::string method = fields.string("topk_method", "noaux_tc");
  const bool has_bias = method == "noaux_tc";
  const std::string score = fields.string("scoring_func", has_bias ? "sigmoid" : "softmax");
  if (method != "noaux_tc" && method != "group_limited_greedy" && method != "greedy") {
    fields.fail("topk_method", fields.find("topk_method"),
                "noaux_tc, group_limited_greedy or greedy");
  }
  if (score != "sigmoid" && score != "softmax") {
    fields.fail("scoring_func", fields.find("scoring_func"), "sigmoid or softmax");
  }
  router.score = score == "sigmoid" ? kernels::ExpertScore::sigmoid : kernels::ExpertScore::softmax;
  if (method != "greedy") {
    router.num_groups = static_cast<int32_t>(fields.integer("n_group", 1, router.num_experts, 1));
    router.top_groups = static_cast<int32_t>(fields.integer("topk_group", 1, router.num_groups, 1));
  }
  router.group_score =
      has_bias ? kernels::GroupScore::sum_of_two_best : kernels::GroupScore::largest;
  // Transformers' DeepSeek-V2 has the field and does not read it.
  router.renormalize = fields.boolean("norm_topk_prob", has_bias) && has_bias;
  router.scale = static_cast<float>(fields.number("routed_scaling_factor", 0, 1e6, 1.0));
  if (has_bias) moe->correction_bias_name = "gate.e_score_correction_bias";
  moe->shared_intermediate_size =
      fields.integer("n_shared_experts", 0, 1024, 0) * moe->experts.intermediate_size;
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return moe;
}

}  // namespace

Status add_deepseek_layers(DecoderLoader& decoder, const ModelConfig& config,
                           const std::function<void(int64_t index)>& add_attention) {
  auto moe = deepseek_moe(config);
  if (!moe) return forward_error(moe);
  ConfigFields fields = config.fields();
  const int64_t num_dense = fields.integer("first_k_dense_replace", 0, 4096, 0);
  const int64_t frequency = fields.integer("moe_layer_freq", 1, 4096, 1);
  const int64_t num_guessing = fields.integer("num_nextn_predict_layers", 0, 4096, 0);
  if (!fields.status()) return fields.status();
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);
  const BlockNorms ffn_norms{.before = "post_attention_layernorm", .after = ""};

  const int64_t num_layers = config.num_hidden_layers;
  for (int64_t i = 0; i < num_layers; ++i) {
    add_attention(i);
    if (i >= num_dense && i % frequency == 0) {
      decoder.moe(i, ffn_norms, *moe);
    } else {
      decoder.gated_ffn(i, ffn_norms, ffn);
    }
  }
  if (decoder.wants_next_token_layer() && num_guessing > 0) {
    decoder.begin_next_token_layer(num_layers);
    add_attention(num_layers);
    decoder.moe(num_layers, ffn_norms, *moe);
  }
  return {};
}

}  // namespace tw
