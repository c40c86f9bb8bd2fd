#include "models/llama.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "nn/attention.h"
#include "nn/layers.h"
#include "nn/linear.h"
#include "nn/load_sequence.h"
#include "nn/rope.h"

namespace tw {
namespace {

struct LlamaLayer {
  std::vector<float> input_layernorm;           // [hidden_size]
  std::vector<float> post_attention_layernorm;  // [hidden_size]
  Linear qkv_proj;                              // hidden -> queries, keys, values
  Linear o_proj;                                // attention output -> hidden
  Linear gate_up_proj;                          // hidden -> 2 x intermediate
  Linear down_proj;                             // intermediate -> hidden
};

struct LlamaWeights {
  Linear embed_tokens;  // [vocab_size, hidden_size]
  std::vector<LlamaLayer> layers;
  std::vector<float> norm;        // [hidden_size]
  std::optional<Linear> lm_head;  // absent when tied to embed_tokens
};

Expected<LlamaLayer> load_layer(const WeightLoader& loader, const ModelConfig& config,
                                int64_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = int64_t{config.num_attention_heads} * config.head_dim;
  const int64_t kv_size = int64_t{config.num_key_value_heads} * config.head_dim;
  LlamaLayer layer;
  LoadSequence load(loader, prefix);
  load.vector("input_layernorm.weight", hidden, layer.input_layernorm);
  load.vector("post_attention_layernorm.weight", hidden, layer.post_attention_layernorm);
  load.linear({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, hidden,
              {q_size, kv_size, kv_size}, config.attention_bias, layer.qkv_proj);
  load.linear({"self_attn.o_proj"}, q_size, {hidden}, config.attention_bias, layer.o_proj);
  load.linear({"mlp.gate_proj", "mlp.up_proj"}, hidden,
              {config.intermediate_size, config.intermediate_size}, config.mlp_bias,
              layer.gate_up_proj);
  load.linear({"mlp.down_proj"}, config.intermediate_size, {hidden}, config.mlp_bias,
              layer.down_proj);
  if (Status status = load.status(); !status) return forward_error(status);
  return layer;
}

Expected<LlamaWeights> load_weights(const WeightLoader& loader, const ModelConfig& config) {
  LlamaWeights weights;
  LoadSequence load(loader, "");
  load.linear({"model.embed_tokens"}, config.hidden_size, {config.vocab_size}, false,
              weights.embed_tokens);
  load.vector("model.norm.weight", config.hidden_size, weights.norm);
  if (!config.tie_word_embeddings) {
    load.linear({"lm_head"}, config.hidden_size, {config.vocab_size}, false,
                weights.lm_head.emplace());
  }
  if (Status status = load.status(); !status) return forward_error(status);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    auto layer = load_layer(loader, config, i);
    if (!layer) return forward_error(layer);
    weights.layers.push_back(std::move(*layer));
  }
  return weights;
}

class LlamaModel final : public Model {
 public:
  LlamaModel(const ModelConfig& config, LlamaWeights weights, ThreadTeam& team,
             const CpuFeatures& features)
      : config_(config), weights_(std::move(weights)), team_(team), features_(features) {
    limits_.vocab_size = config.vocab_size;
    limits_.max_position_embeddings = config.max_position_embeddings;
    limits_.kv_bytes_per_token =
        config.num_hidden_layers * kv_layout(kernels::kTokenBlock).bytes_per_token();
  }

  const ModelLimits& limits() const override { return limits_; }

  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    const int64_t max_context = std::min(limits_.max_position_embeddings, num_pages * page_size);
    auto rope = kernels::RopeTable::build(rope_parameters(config_), max_context);
    if (!rope) return forward_error(rope);
    rope_ = std::move(*rope);
    auto cache = KvCache::allocate(kv_layout(page_size), config_.num_hidden_layers, num_pages);
    if (!cache) return forward_error(cache);
    cache_ = std::move(*cache);
    auto plan = record({max_num_tokens, max_num_seqs, max_context, team_.size()});
    if (!plan) return forward_error(plan);
    plan_ = std::move(*plan);
    return {};
  }

  Matrix<const float> forward(const Batch& batch) override {
    if (collect_timings_) {
      plan_.run_timed(batch, team_, timings_);
    } else {
      plan_.run(batch, team_);
    }
    const Matrix<float> logits = plan_.view(logits_, batch.num_logits());
    return {logits.data, logits.rows, logits.cols, logits.row_stride};
  }

  void collect_step_timings(bool on) override { collect_timings_ = on; }
  std::vector<StepTiming> step_timings() const override { return timings_; }

 private:
  kernels::KvLayout kv_layout(int32_t page_size) const {
    return {config_.num_key_value_heads, config_.head_dim, page_size};
  }

  Expected<Plan> record(const kernels::AttentionLimits& limits) {
    PlanRecorder plan(limits.max_num_tokens);
    PreparedInputs prepared(plan);
    const LayerKernels kernels = LayerKernels::select(features_);
    AttentionRecorder attention(plan, features_, config_.num_attention_heads, rope_, cache_,
                                limits);
    const float epsilon = config_.rms_norm_eps;
    const int64_t hidden_size = config_.hidden_size;
    const int64_t head_dim = config_.head_dim;

    const ValueId hidden = plan.add_value(RowKind::tokens, hidden_size);  // the residual stream
    const ValueId normed = plan.add_value(RowKind::tokens, hidden_size);
    const ValueId qkv =
        plan.add_value(RowKind::tokens,
                       (config_.num_attention_heads + 2 * config_.num_key_value_heads) * head_dim);
    const ValueId attended =
        plan.add_value(RowKind::tokens, config_.num_attention_heads * head_dim);
    const ValueId gate_up = plan.add_value(RowKind::tokens, 2 * config_.intermediate_size);
    const ValueId activated = plan.add_value(RowKind::tokens, config_.intermediate_size);

    record_embedding(plan, kernels, weights_.embed_tokens.table(), hidden);
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const LlamaLayer& layer = weights_.layers[i];
      record_rms_norm(plan, kernels, hidden, layer.input_layernorm, epsilon, normed);
      layer.qkv_proj.record(plan, prepared, normed, qkv);
      attention.record(static_cast<int64_t>(i), qkv, attended, config_.sliding_window);
      layer.o_proj.record(plan, prepared, attended, hidden, kernels::Epilogue::accumulate);

      record_rms_norm(plan, kernels, hidden, layer.post_attention_layernorm, epsilon, normed);
      layer.gate_up_proj.record(plan, prepared, normed, gate_up);
      record_gated_activation(plan, kernels, kernels::Activation::silu, gate_up, activated);
      layer.down_proj.record(plan, prepared, activated, hidden, kernels::Epilogue::accumulate);
    }

    const ValueId last = plan.add_value(RowKind::logits, hidden_size);
    const ValueId last_normed = plan.add_value(RowKind::logits, hidden_size);
    logits_ = plan.add_value(RowKind::logits, config_.vocab_size);
    record_gather_logit_rows(plan, hidden, last);
    record_rms_norm(plan, kernels, last, weights_.norm, epsilon, last_normed);
    const Linear& head = weights_.lm_head ? *weights_.lm_head : weights_.embed_tokens;
    head.record(plan, prepared, last_normed, logits_);
    return plan.finish();
  }

  const ModelConfig config_;
  const LlamaWeights weights_;
  ThreadTeam& team_;
  const CpuFeatures features_;
  ModelLimits limits_;
  kernels::RopeTable rope_;
  KvCache cache_;
  Plan plan_;
  ValueId logits_;
  bool collect_timings_ = false;
  std::vector<StepTiming> timings_;
};

}  // namespace

Expected<std::unique_ptr<Model>> load_llama(const WeightLoader& loader, const ModelConfig& config) {
  if (config.hidden_act != "silu") {
    return error(ErrorCode::unsupported, "{}: hidden_act {} is not supported; expected silu",
                 loader.checkpoint.path().string(), config.hidden_act);
  }
  auto weights = load_weights(loader, config);
  if (!weights) return forward_error(weights);
  return std::make_unique<LlamaModel>(config, std::move(*weights), loader.team, loader.features);
}

}  // namespace tw
