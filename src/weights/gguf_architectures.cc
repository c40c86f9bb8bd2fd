#include "weights/gguf_architectures.h"

#include "weights/gguf_mixtures.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace tw {
namespace {

constexpr GgufName kSandwichNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr GgufName kFusedNames[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
};
constexpr GgufName kGlm4Names[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
};

constexpr GgufName kMixtralNames[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.gate_proj"},
    {"ffn_up_exps", "block_sparse_moe.experts.up_proj"},
    {"ffn_down_exps", "block_sparse_moe.experts.down_proj"},
};
constexpr GgufName kQwen2MoeNames[] = {
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
};
// The two halves of kv_b_proj have no name of Hugging Face's: k_b_proj and v_b_proj.
constexpr GgufName kDeepseekNames[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
};
constexpr GgufName kGlm4MoeNames[] = {{"post_attention_norm", "post_attention_layernorm"}};
constexpr GgufName kGptOssNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},
    {"attn_sinks", "self_attn.sinks", true},
};

int64_t integer_of(const Json& config, const char* field) {
  return config.value(field, int64_t{0});
}

std::optional<int64_t> sliding_window(const GgufModel& model) {
  const auto window = model.gguf.integer(model.prefix + "attention.sliding_window");
  return window.value_or(0) > 0 ? window : std::nullopt;
}

// Mixtral goes by the name of Llama.
void complete_llama(const GgufModel& model, Json& config) {
  if (model.gguf.integer(model.prefix + "expert_count").value_or(0) > 0) {
    return complete_mixtral(model, config);
  }
  const auto window = sliding_window(model);
  if (!window) return;
  config["sliding_window"] = *window;
  config["architectures"] = {"MistralForCausalLM"};
  config["model_type"] = "mistral";
}

void complete_phi3(const GgufModel& model, Json& config) {
  if (const auto window = sliding_window(model)) config["sliding_window"] = *window;
}

// Converters add the one that Gemma's checkpoints leave out of the weights of norms.
void complete_gemma(const GgufModel&, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["norm_weight_offset"] = 0;
}

// The scale of the scores is not in the metadata; the largest model of each generation is the one
// that does not divide by the root of head_dim.
void set_query_scalar(int64_t layers_of_largest, Json& config) {
  const int64_t num_heads = integer_of(config, "num_attention_heads");
  const bool is_largest = integer_of(config, "num_hidden_layers") == layers_of_largest;
  config["query_pre_attn_scalar"] = is_largest && num_heads > 0
                                        ? integer_of(config, "hidden_size") / num_heads
                                        : integer_of(config, "head_dim");
}

void complete_gemma2(const GgufModel& model, Json& config) {
  complete_gemma(model, config);
  set_query_scalar(46, config);
  if (const auto window = sliding_window(model)) config["sliding_window"] = *window;
  for (const char* field : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (const auto cap = model.gguf.number(model.prefix + field)) config[field] = *cap;
  }
}

void complete_gemma3(const GgufModel& model, Json& config) {
  complete_gemma(model, config);
  set_query_scalar(62, config);
  if (const auto window = sliding_window(model)) config["sliding_window"] = *window;
  if (const auto cap = model.gguf.number(model.prefix + "final_logit_softcapping")) {
    config["final_logit_softcapping"] = *cap;
  }
  if (!model.gguf.number(model.prefix + "rope.freq_base")) config["rope_theta"] = 1e6;
  config["rope_local_base_freq"] =
      model.gguf.number(model.prefix + "rope.freq_base_swa").value_or(1e4);
}

// OLMo 3 goes by the name of OLMo 2.
void complete_olmo2(const GgufModel& model, Json& config) {
  const auto window = sliding_window(model);
  if (!window) return;
  config["sliding_window"] = *window;
  config["architectures"] = {"Olmo3ForCausalLM"};
  config["model_type"] = "olmo3";
  const GgufArray* pattern = model.gguf.array(model.prefix + "attention.sliding_window_pattern");
  if (pattern == nullptr) return;
  Json types = Json::array();
  for (const GgufValue& item : pattern->items) {
    const bool* slides = std::get_if<bool>(&item);
    types.push_back(slides != nullptr && *slides ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

const GgufArchitecture kArchitectures[] = {
    {.name = "llama",
     .hugging_face = "LlamaForCausalLM",
     .model_type = "llama",
     .layer_names = kMixtralNames,
     .interleaved_heads = true,
     .complete = complete_llama},
    {.name = "qwen2", .hugging_face = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen3", .hugging_face = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "qwen2moe",
     .hugging_face = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .layer_names = kQwen2MoeNames,
     .complete = complete_qwen2_moe},
    {.name = "qwen3moe",
     .hugging_face = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .complete = complete_qwen3_moe},
    {.name = "deepseek2",
     .hugging_face = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .layer_names = kDeepseekNames,
     .complete = complete_deepseek},
    {.name = "glm4moe",
     .hugging_face = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .layer_names = kGlm4MoeNames,
     .complete = complete_glm4_moe},
    {.name = "gpt-oss",
     .hugging_face = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .layer_names = kGptOssNames,
     .complete = complete_gpt_oss},
    {.name = "gemma",
     .hugging_face = "GemmaForCausalLM",
     .model_type = "gemma",
     .complete = complete_gemma},
    {.name = "gemma2",
     .hugging_face = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .layer_names = kSandwichNames,
     .complete = complete_gemma2},
    {.name = "gemma3",
     .hugging_face = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .layer_names = kSandwichNames,
     .complete = complete_gemma3},
    {.name = "phi3",
     .hugging_face = "Phi3ForCausalLM",
     .model_type = "phi3",
     .layer_names = kFusedNames,
     .complete = complete_phi3},
    {.name = "glm4",
     .hugging_face = "Glm4ForCausalLM",
     .model_type = "glm4",
     .layer_names = kGlm4Names},
    {.name = "olmo2",
     .hugging_face = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .layer_names = kSandwichNames,
     .complete = complete_olmo2},
    {.name = "smollm3",
     .hugging_face = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .interleaved_heads = true},
};

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [name](const GgufArchitecture& row) { return row.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

}  // namespace tw
