// DeepSeek-V2, V3, V3.1 and R1, and Kimi K2, which is built like V3.
//
// DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model"
// (2024), "DeepSeek-V3 Technical Report" (2024); Moonshot AI, "Kimi K2: Open Agentic Intelligence"
// (2025). Multi-head latent attention, computed in the latent space; a dense feed-forward network
// in the first layers, and a mixture of many small experts beside shared ones in the others.
#include "models/decoder.h"
#include "models/deepseek_layers.h"
#include "models/families.h"
#include "nn/mla_block.h"

namespace tw {
namespace {

Expected<std::unique_ptr<Model>> load_deepseek(const WeightLoader& loader,
                                               const ModelConfig& config) {
  auto mla = MlaConfig::from(config);
  if (!mla) return forward_error(mla);
  ConfigFields fields = config.fields();
  mla->interleaved_rope = fields.boolean("rope_interleave", true);
  if (!fields.status()) return tl::unexpected(fields.status().error());

  DecoderLoader decoder(loader, config);
  Status status = add_deepseek_layers(decoder, config, [&](int64_t index) {
    decoder.mla(index, {.before = "input_layernorm", .after = ""}, *mla);
  });
  if (!status) return forward_error(status);
  return decoder.finish();
}

constexpr const char* kV3Defaults =
    R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_group": 8, "topk_group": 4, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048,
        "routed_scaling_factor": 2.5, "first_k_dense_replace": 3,
        "max_position_embeddings": 4096})";
constexpr const char* kV2Defaults =
    R"({"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "topk_method": "greedy", "n_routed_experts": 64, "n_shared_experts": 2,
        "moe_intermediate_size": 1407})";

constexpr Family kFamilies[] = {
    {"DeepseekV2ForCausalLM", load_deepseek, kV2Defaults},
    {"DeepseekV3ForCausalLM", load_deepseek, kV3Defaults},
    {"KimiK2ForCausalLM", load_deepseek, kV3Defaults},
};

}  // namespace

std::span<const Family> deepseek_families() {
  return kFamilies;
}

}  // namespace tw
