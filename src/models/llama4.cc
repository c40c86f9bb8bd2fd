// Llama 4, and the language model of its multimodal checkpoints.
//
// Meta, "The Llama 4 herd" (2025). Three of four layers rotate queries and keys, normalize both
// without weights and attend within pieces of the context; the fourth has no positions, sees all,
// and its queries grow with the position instead. Experts, all layers or every second, read inputs
// scaled by the sigmoid of the router's logit, beside a shared expert.
#include <algorithm>

#include "models/decoder.h"
#include "models/families.h"
#include "models/layer_types.h"

namespace tw {
namespace {

// Which layers have experts: those of moe_layers, or every interleave_moe_layer_step-th.
Expected<std::vector<bool>> expert_layers_of(const ModelConfig& config) {
  ConfigFields fields = config.fields();
  const int64_t step = fields.integer("interleave_moe_layer_step", 1, 4096, 1);
  const bool is_given = fields.has("moe_layers");
  const auto given = fields.integers("moe_layers", 0, 4096);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  std::vector<bool> sparse;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    sparse.push_back(is_given ? std::ranges::find(given, i) != given.end() : (i + 1) % step == 0);
  }
  return sparse;
}

// Which layers attend within pieces of attention_chunk_size: by layer_types, or those that rotate.
Expected<std::vector<bool>> chunked_layers(const ModelConfig& config, bool has_chunk,
                                           const std::vector<bool>& rotating) {
  std::vector<bool> chunked;
  for (size_t i = 0; i < rotating.size(); ++i) {
    if (config.layer_types.empty()) {
      chunked.push_back(has_chunk && rotating[i]);
      continue;
    }
    const std::string& type = config.layer_types[i];
    if (type != "full_attention" && type != "chunked_attention") {
      return error(ErrorCode::unsupported,
                   "{}: layer_types has {} for layer {}; known are full_attention and "
                   "chunked_attention",
                   config.source, type, i);
    }
    chunked.push_back(type == "chunked_attention");
    if (chunked.back() && !has_chunk) {
      return error(ErrorCode::corrupt_data,
                   "{}: layer {} is of chunked_attention, but there is no attention_chunk_size",
                   config.source, i);
    }
  }
  return chunked;
}

// attn_temperature_tuning is a boolean; in the first releases, a number that stands for true.
std::optional<QueryTemperature> query_temperature(ConfigFields& fields) {
  const Json* tuning = fields.find("attn_temperature_tuning");
  const bool is_number = tuning != nullptr && tuning->is_number();
  const bool is_tuned = is_number ? fields.integer("attn_temperature_tuning", 0, 1 << 20) != 0
                                  : fields.boolean("attn_temperature_tuning", true);
  if (!is_tuned) return std::nullopt;
  QueryTemperature temperature;
  temperature.scale = static_cast<float>(fields.number("attn_scale", 0, 1e3, 0.1));
  temperature.floor = static_cast<float>(fields.number("floor_scale", 1, 1e9, 8192));
  return temperature;
}

Expected<MoeConfig> llama4_moe(const ModelConfig& config) {
  auto moe = MoeConfig::from(config);
  if (!moe) return moe;
  moe->router.score = kernels::ExpertScore::sigmoid;
  moe->weights_inputs = true;
  moe->experts.is_transposed = true;
  moe->shared_intermediate_size = moe->experts.intermediate_size;
  moe->router_name = "router";
  moe->shared_name = "shared_expert";
  return moe;
}

Expected<std::unique_ptr<Model>> load_llama4(const WeightLoader& loader,
                                             const ModelConfig& config) {
  ConfigFields fields = config.fields();
  AttentionConfig attention = AttentionConfig::from(config);
  attention.interleaved_rope = true;
  const bool use_qk_norm = fields.boolean("use_qk_norm", true);
  const std::optional<QueryTemperature> temperature = query_temperature(fields);
  const auto chunk = static_cast<int32_t>(fields.integer("attention_chunk_size", 0, 1 << 28, 0));
  GatedFfnConfig ffn = GatedFfnConfig::from(config);
  ffn.intermediate_size = fields.integer("intermediate_size_mlp", 1, 1 << 24, 16384);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  auto moe = llama4_moe(config);
  if (!moe) return forward_error(moe);
  auto sparse = expert_layers_of(config);
  if (!sparse) return forward_error(sparse);
  auto rotating = rotating_layers(config);
  if (!rotating) return forward_error(rotating);
  auto chunked = chunked_layers(config, chunk > 0, *rotating);
  if (!chunked) return forward_error(chunked);

  const BlockNorms ffn_norms{.before = "post_attention_layernorm", .after = ""};
  DecoderLoader decoder(loader, config);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    AttentionConfig own = attention;
    own.attention_chunk = (*chunked)[layer] ? chunk : 0;
    if ((*rotating)[layer]) {
      // The reference normalizes behind the rotation, which changes no length.
      if (use_qk_norm) own.qk_norm = QkNormKind::unweighted;
    } else {
      own.rope.reset();
      own.temperature = temperature;
    }
    decoder.attention(i, {.before = "input_layernorm", .after = ""}, own);
    if ((*sparse)[layer]) {
      decoder.moe(i, ffn_norms, *moe, "feed_forward");
    } else {
      decoder.gated_ffn(i, ffn_norms, ffn, "feed_forward");
    }
  }
  return decoder.finish();
}

constexpr const char* kDefaults =
    R"({"hidden_size": 5120, "intermediate_size": 8192, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 202048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "max_position_embeddings": 131072, "num_local_experts": 16, "num_experts_per_tok": 1,
        "attention_chunk_size": 8192})";

constexpr Family kFamilies[] = {
    {"Llama4ForCausalLM", load_llama4, kDefaults},
    {"Llama4ForConditionalGeneration", load_llama4, kDefaults},
};

}  // namespace

std::span<const Family> llama4_families() {
  return kFamilies;
}

}  // namespace tw
