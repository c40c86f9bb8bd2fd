#include "weights/gguf_architectures.h"

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

int64_t integer_of(const Json& config, const char* field) {
  return config.value(field, int64_t{0});
}

std::optional<int64_t> sliding_window(const GgufModel& model) {
  const auto window = model.gguf.integer(model.prefix + "attention.sliding_window");
  return window.value_or(0) > 0 ? window : std::nullopt;
}

void complete_llama(const GgufModel& model, Json& config) {
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
     .interleaved_heads = true,
     .complete = complete_llama},
    {.name = "qwen2", .hugging_face = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen3", .hugging_face = "Qwen3ForCausalLM", .model_type = "qwen3"},
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
