#include "weights/gguf_mixtures.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <utility>

namespace tw {
namespace {

struct Field {
  const char* name;  // in config.json
  const char* key;   // behind the architecture
};

constexpr Field kExpertFields[] = {
    {"num_experts_per_tok", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
};
// Families have their own names for the number of experts.
void copy_expert_fields(const GgufModel& model, const char* count_name, Json& config) {
  const auto copy = [&](const Field& field) {
    if (const auto value = model.gguf.integer(model.prefix + field.key))
      config[field.name] = *value;
  };
  copy({count_name, "expert_count"});
  std::ranges::for_each(kExpertFields, copy);
}

bool has_tensor(const GgufModel& model, const std::string& name) {
  return std::ranges::any_of(model.tensors,
                             [&](const StoredTensor& tensor) { return tensor.name == name; });
}

// Which layers are dense shows in their tensors only.
void find_dense_layers(const GgufModel& model, Json& config) {
  Json dense = Json::array();
  for (int64_t i = 0; i < config.value("num_hidden_layers", int64_t{0}); ++i) {
    if (has_tensor(model, fmt::format("model.layers.{}.mlp.gate_proj.weight", i))) {
      dense.push_back(i);
    }
  }
  config["mlp_only_layers"] = std::move(dense);
}

// The layers for multi-token prediction count as layers.
void leave_out_predicting_layers(const GgufModel& model, Json& config) {
  const int64_t extra = model.gguf.integer(model.prefix + "nextn_predict_layers").value_or(0);
  const int64_t all = config["num_hidden_layers"].get<int64_t>();
  if (extra > 0 && extra < all) config["num_hidden_layers"] = all - extra;
}

const char* scoring_function(const GgufModel& model, const char* absent) {
  const auto number = model.gguf.integer(model.prefix + "expert_gating_func");
  if (!number) return absent;
  if (*number == 1) return "softmax";
  return *number == 2 ? "sigmoid" : "unknown (expert_gating_func)";
}

// Older files do not have the groups of experts. Their number tells the released models that have
// groups from each other: DeepSeek-V2 with 160 experts, V3 with 256.
std::pair<int64_t, int64_t> expert_groups(const GgufModel& model) {
  const auto number = [&](const char* key) { return model.gguf.integer(model.prefix + key); };
  if (const auto groups = number("expert_group_count")) {
    return {*groups, number("expert_group_used_count").value_or(*groups)};
  }
  const int64_t experts = number("expert_count").value_or(0);
  if (experts == 160) return {8, 3};
  if (experts == 256) return {8, 4};
  return {1, 1};
}

// DeepSeek's mixture, which GLM has too. What is absent is set: the defaults of config.json are
// another model's.
void complete_deepseek_experts(const GgufModel& model, Json& config) {
  const auto number = [&](const char* key) { return model.gguf.integer(model.prefix + key); };
  copy_expert_fields(model, "n_routed_experts", config);
  leave_out_predicting_layers(model, config);
  config["n_shared_experts"] = number("expert_shared_count").value_or(0);
  config["first_k_dense_replace"] = number("leading_dense_block_count").value_or(0);
  std::tie(config["n_group"], config["topk_group"]) = expert_groups(model);
  config["routed_scaling_factor"] =
      model.gguf.number(model.prefix + "expert_weights_scale").value_or(1.0);
  config["norm_topk_prob"] =
      model.gguf.boolean(model.prefix + "expert_weights_norm").value_or(false);
}

// Sizes of latent attention. Where kv_b_proj is split, key_length and value_length are those of the
// one head of latents that is attended to, and the heads' own have other names.
void complete_latent_attention(const GgufModel& model, Json& config) {
  const auto number = [&](const char* key) { return model.gguf.integer(model.prefix + key); };
  const auto head_size = [&](const char* of_heads, const char* other) {
    const auto size = number(of_heads);
    return (size ? size : number(other)).value_or(0);
  };
  const int64_t keys = head_size("attention.key_length_mla", "attention.key_length");
  const int64_t rope = number("rope.dimension_count").value_or(0);
  config["qk_rope_head_dim"] = rope;
  config["qk_nope_head_dim"] = keys - rope;
  config["v_head_dim"] = head_size("attention.value_length_mla", "attention.value_length");
  for (const char* field : {"q_lora_rank", "kv_lora_rank"}) {
    const auto rank = model.gguf.integer(model.prefix + "attention." + field);
    config[field] = rank ? Json(*rank) : Json(nullptr);
  }
  config["num_key_value_heads"] = config["num_attention_heads"];
  if (rope > 0) config["head_dim"] = rope;
  config.erase("partial_rotary_factor");
}

// A tenth of mscale_all_dim, which mscale equals, in 32 bits: what they were in decimal.
void complete_yarn(const GgufModel& model, Json& config) {
  const auto tenth = model.gguf.number(model.prefix + "rope.scaling.yarn_log_multiplier");
  Json& scaling = config["rope_scaling"];
  if (!tenth || !scaling.is_object()) return;
  const double mscale = std::round(*tenth * 1e7) / 1e6;
  scaling["mscale"] = mscale;
  scaling["mscale_all_dim"] = mscale;
}

}  // namespace

void complete_mixtral(const GgufModel& model, Json& config) {
  config["architectures"] = {"MixtralForCausalLM"};
  config["model_type"] = "mixtral";
  copy_expert_fields(model, "num_local_experts", config);
  if (const auto window = model.gguf.integer(model.prefix + "attention.sliding_window")) {
    config["sliding_window"] = *window;
  }
}

void complete_qwen2_moe(const GgufModel& model, Json& config) {
  copy_expert_fields(model, "num_experts", config);
  find_dense_layers(model, config);
  config["norm_topk_prob"] = false;
}

void complete_qwen3_moe(const GgufModel& model, Json& config) {
  copy_expert_fields(model, "num_experts", config);
  find_dense_layers(model, config);
  config["norm_topk_prob"] = true;
}

void complete_deepseek(const GgufModel& model, Json& config) {
  complete_deepseek_experts(model, config);
  complete_latent_attention(model, config);
  complete_yarn(model, config);
  const std::string score = scoring_function(model, "softmax");
  config["scoring_func"] = score;
  if (score != "softmax") return;
  config["architectures"] = {"DeepseekV2ForCausalLM"};
  config["model_type"] = "deepseek_v2";
  config["topk_method"] =
      config.value("n_group", int64_t{1}) > 1 ? "group_limited_greedy" : "greedy";
}

void complete_glm4_moe(const GgufModel& model, Json& config) {
  complete_deepseek_experts(model, config);
  config["scoring_func"] = scoring_function(model, "sigmoid");
  config["use_qk_norm"] = has_tensor(model, "model.layers.0.self_attn.q_norm.weight");
}

void complete_gpt_oss(const GgufModel& model, Json& config) {
  copy_expert_fields(model, "num_local_experts", config);
  if (const auto window = model.gguf.integer(model.prefix + "attention.sliding_window")) {
    config["sliding_window"] = *window;
  }
  if (config["rope_scaling"].is_object()) config["rope_scaling"]["truncate"] = false;
}

}  // namespace tw
