#include "weights/gguf_names.h"

#include <fmt/format.h>

namespace tw {
namespace {

constexpr GgufName kGlobalNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr GgufName kLayerNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias", true},
};

}  // namespace

std::string hugging_face_name(std::string_view gguf_name, std::span<const GgufName> layer_names) {
  const size_t last_dot = gguf_name.rfind('.');
  if (last_dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view stem = gguf_name.substr(0, last_dot);
  const std::string_view kind = gguf_name.substr(last_dot);
  for (const GgufName& name : kGlobalNames) {
    if (stem == name.gguf) return fmt::format("{}{}", name.hugging_face, kind);
  }
  constexpr std::string_view kBlock = "blk.";
  const size_t dot = stem.find('.', kBlock.size());
  if (stem.substr(0, kBlock.size()) != kBlock || dot == std::string_view::npos) {
    return std::string(gguf_name);
  }
  const std::string_view layer = stem.substr(kBlock.size(), dot - kBlock.size());
  for (const std::span<const GgufName> names :
       {layer_names, std::span<const GgufName>(kLayerNames)}) {
    for (const GgufName& name : names) {
      if (stem.substr(dot + 1) == name.gguf) {
        return fmt::format("model.layers.{}.{}{}", layer, name.hugging_face,
                           name.is_parameter ? "" : kind);
      }
    }
  }
  return std::string(gguf_name);
}

}  // namespace tw
