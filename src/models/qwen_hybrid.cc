// Qwen3-Next and Qwen 3.5: three of four layers are gated delta nets, which carry a state from
// token to token, the fourth is attention whose output is gated.
//
// Qwen Team, "Qwen3-Next: Towards Ultimate Training & Inference Efficiency" (2025). Weights of
// norms are stored minus one; a quarter of each head is rotated. Of Qwen 3.5's multimodal
// checkpoints the language model is loaded: the positions of text are the same in all three parts
// of its rotation.
#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"
#include "nn/gated_delta_block.h"

namespace tw {
namespace {

// Which layers are delta nets: by layer_types, or all but every full_attention_interval-th.
Expected<std::vector<bool>> linear_layers(const ModelConfig& config) {
  ConfigFields fields = config.fields();
  const int64_t interval = fields.integer("full_attention_interval", 1, 4096, 4);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  std::vector<bool> linear;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (config.layer_types.empty()) {
      linear.push_back((i + 1) % interval != 0);
      continue;
    }
    const std::string& type = config.layer_types[static_cast<size_t>(i)];
    if (type != "full_attention" && type != "linear_attention") {
      return error(ErrorCode::unsupported,
                   "{}: layer_types has {} for layer {}; known are full_attention and "
                   "linear_attention",
                   config.source, type, i);
    }
    linear.push_back(type == "linear_attention");
  }
  return linear;
}

Expected<MoeConfig> hybrid_moe(const ModelConfig& config) {
  auto moe = MoeConfig::from(config);
  if (!moe) return moe;
  ConfigFields fields = config.fields();
  moe->router.renormalize = fields.boolean("norm_topk_prob", true);
  moe->shared_intermediate_size = fields.integer("shared_expert_intermediate_size", 1, 1 << 24);
  moe->shared_name = "shared_expert";
  moe->shared_gate_name = "shared_expert_gate";
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return moe;
}

// `sparse`: which layers have experts, as `moe` says.
Expected<std::unique_ptr<Model>> load_layers(const WeightLoader& loader, const ModelConfig& config,
                                             bool has_grouped_projections,
                                             const std::vector<bool>& sparse,
                                             const MoeConfig& moe) {
  auto linear = linear_layers(config);
  if (!linear) return forward_error(linear);
  auto delta = GatedDeltaConfig::from(config);
  if (!delta) return forward_error(delta);
  delta->is_grouped = has_grouped_projections;
  AttentionConfig attention = AttentionConfig::from(config);
  attention.output_gate = true;
  attention.qk_norm = QkNormKind::per_head;
  attention.norm_weight_offset = 1;
  const GatedFfnConfig ffn = GatedFfnConfig::from(config);
  const BlockNorms attention_norms{.before = "input_layernorm", .after = ""};
  const BlockNorms ffn_norms{.before = "post_attention_layernorm", .after = ""};

  DecoderLoader decoder(loader, config, {.norm_weight_offset = 1});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    if ((*linear)[layer]) {
      decoder.gated_delta(i, attention_norms, *delta);
    } else {
      decoder.attention(i, attention_norms, attention);
    }
    if (sparse[layer]) {
      decoder.moe(i, ffn_norms, moe);
    } else {
      decoder.gated_ffn(i, ffn_norms, ffn);
    }
  }
  return decoder.finish();
}

Expected<std::unique_ptr<Model>> load_qwen3_next(const WeightLoader& loader,
                                                 const ModelConfig& config) {
  auto moe = hybrid_moe(config);
  if (!moe) return forward_error(moe);
  auto sparse = sparse_layers(config);
  if (!sparse) return forward_error(sparse);
  return load_layers(loader, config, true, *sparse, *moe);
}

Expected<std::unique_ptr<Model>> load_qwen3_5(const WeightLoader& loader,
                                              const ModelConfig& config) {
  const std::vector<bool> sparse(static_cast<size_t>(config.num_hidden_layers), false);
  return load_layers(loader, config, false, sparse, {});
}

Expected<std::unique_ptr<Model>> load_qwen3_5_moe(const WeightLoader& loader,
                                                  const ModelConfig& config) {
  auto moe = hybrid_moe(config);
  if (!moe) return forward_error(moe);
  const std::vector<bool> sparse(static_cast<size_t>(config.num_hidden_layers), true);
  return load_layers(loader, config, false, sparse, *moe);
}

constexpr const char* kNextDefaults =
    R"({"num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25,
        "max_position_embeddings": 32768, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "intermediate_size": 5632})";
constexpr const char* k35Defaults =
    R"({"num_key_value_heads": 4, "head_dim": 256, "partial_rotary_factor": 0.25,
        "max_position_embeddings": 32768, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32})";
// Without dense layers there need be no intermediate_size.
constexpr const char* k35MoeDefaults =
    R"({"num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25,
        "max_position_embeddings": 32768, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "intermediate_size": 512})";

constexpr Family kFamilies[] = {
    {"Qwen3NextForCausalLM", load_qwen3_next, kNextDefaults},
    {"Qwen3_5ForCausalLM", load_qwen3_5, k35Defaults},
    {"Qwen3_5ForConditionalGeneration", load_qwen3_5, k35Defaults},
    {"Qwen3_5MoeForCausalLM", load_qwen3_5_moe, k35MoeDefaults},
    {"Qwen3_5MoeForConditionalGeneration", load_qwen3_5_moe, k35MoeDefaults},
};

}  // namespace

std::span<const Family> qwen_hybrid_families() {
  return kFamilies;
}

}  // namespace tw
