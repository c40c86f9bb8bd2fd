// GLM-4.5, 4.6 and 4.7: many experts behind the first dense layers.
//
// GLM-4.5 Team, "GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation Models" (2025).
// DeepSeek-V3's mixture of experts; grouped-query attention of which half of each head is rotated,
// with biases, and in the larger models with norms of queries and keys.
#include "models/decoder.h"
#include "models/deepseek_layers.h"
#include "models/families.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_glm4_moe(const WeightLoader& loader,
                                               const ModelConfig& config) {
  ConfigFields fields = config.fields();
  AttentionConfig attention = AttentionConfig::from(config);
  attention.output_bias = false;
  if (fields.boolean("use_qk_norm", false)) attention.qk_norm = QkNormKind::per_head;
  if (!fields.status()) return tl::unexpected(fields.status().error());

  DecoderLoader decoder(loader, config);
  Status status = add_deepseek_layers(decoder, config, [&](int64_t index) {
    decoder.attention(index, {.before = "input_layernorm", .after = ""}, attention);
  });
  if (!status) return forward_error(status);
  return decoder.finish();
}

constexpr Family kFamilies[] = {
    {"Glm4MoeForCausalLM", load_glm4_moe,
     R"({"num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 131072, "n_routed_experts": 128, "num_experts_per_tok": 8,
         "n_shared_experts": 1, "moe_intermediate_size": 1408, "first_k_dense_replace": 1})"},
};

}  // namespace

std::span<const Family> glm_moe_families() {
  return kFamilies;
}

}  // namespace tw
