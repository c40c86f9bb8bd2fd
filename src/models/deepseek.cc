// DeepSeek-V2, V3, V3.1 and R1, and Kimi K2, which is built like V3.
//
// DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model"
// (2024), "DeepSeek-V3 Technical Report" (2024); Moonshot AI, "Kimi K2: Open Agentic Intelligence"
// (2025). Multi-head latent attention, computed in the latent space; a dense feed-forward network
// in the first layers, and a mixture of many small experts beside shared ones in the others. The
// router of V2 takes softmax scores, those of a group's best expert deciding among groups; that of
// V3 sigmoid scores, with a correction bias for the choice.
#include "models/decoder.h"
#include "models/families.h"
#include "nn/mla_block.h"

namespace tw {
namespace {

struct Routing {
  kernels::RouterConfig router;
  std::string correction_bias_name;
};

Expected<Routing> v2_routing(const ModelConfig& config, kernels::RouterConfig router) {
  ConfigFields fields = config.fields();
  const std::string method = fields.string("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    router.num_groups = static_cast<int32_t>(fields.integer("n_group", 1, kernels::kMaxExperts));
    router.top_groups = static_cast<int32_t>(fields.integer("topk_group", 1, router.num_groups));
  } else if (method != "greedy") {
    fields.fail("topk_method", fields.find("topk_method"), "greedy or group_limited_greedy");
  }
  router.scale = static_cast<float>(fields.number("routed_scaling_factor", 0, 1e6, 1.0));
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return Routing{router, ""};
}

Expected<Routing> v3_routing(const ModelConfig& config, kernels::RouterConfig router) {
  ConfigFields fields = config.fields();
  router.score = kernels::ExpertScore::sigmoid;
  router.group_score = kernels::GroupScore::sum_of_two_best;
  router.num_groups = static_cast<int32_t>(fields.integer("n_group", 1, kernels::kMaxExperts));
  router.top_groups = static_cast<int32_t>(fields.integer("topk_group", 1, router.num_groups));
  router.renormalize = fields.boolean("norm_topk_prob", true);
  router.scale = static_cast<float>(fields.number("routed_scaling_factor", 0, 1e6, 2.5));
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return Routing{router, "gate.e_score_correction_bias"};
}

template <auto routing_of>
Expected<std::unique_ptr<Model>> load_deepseek(const WeightLoader& loader,
                                               const ModelConfig& config) {
  auto mla = MlaConfig::from(config);
  if (!mla) return forward_error(mla);
  auto moe = MoeConfig::from(config);
  if (!moe) return forward_error(moe);
  ConfigFields fields = config.fields();
  mla->interleaved_rope = fields.boolean("rope_interleave", true);
  const int64_t dense = fields.integer("first_k_dense_replace", 0, config.num_hidden_layers, 0);
  const int64_t shared = fields.integer("n_shared_experts", 0, kernels::kMaxExperts, 0);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  auto routing = routing_of(config, moe->router);
  if (!routing) return forward_error(routing);
  moe->router = routing->router;
  moe->correction_bias_name = routing->correction_bias_name;
  moe->shared_intermediate_size = shared * moe->experts.intermediate_size;
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);
  const BlockNorms ffn_norms{.before = "post_attention_layernorm", .after = ""};

  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    decoder.mla(i, {.before = "input_layernorm", .after = ""}, *mla);
    if (i < dense) {
      decoder.gated_ffn(i, ffn_norms, ffn);
    } else {
      decoder.moe(i, ffn_norms, *moe);
    }
  }
  return decoder.finish();
}

constexpr const char* kV3Defaults =
    R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_group": 8, "topk_group": 4, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3, "max_position_embeddings": 4096})";
constexpr const char* kV2Defaults =
    R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
        "moe_intermediate_size": 1407})";

constexpr Family kFamilies[] = {
    {"DeepseekV2ForCausalLM", load_deepseek<v2_routing>, kV2Defaults},
    {"DeepseekV3ForCausalLM", load_deepseek<v3_routing>, kV3Defaults},
    {"KimiK2ForCausalLM", load_deepseek<v3_routing>, kV3Defaults},
};

}  // namespace

std::span<const Family> deepseek_families() {
  return kFamilies;
}

}  // namespace tw
