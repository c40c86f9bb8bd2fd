#include "nn/attention_block.h"

#include <cmath>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "nn/forward_recorder.h"
#include "nn/head_share.h"
#include "nn/load_sequence.h"

namespace tw {
namespace {

// Where queries and gates lie in a projection that has for each head both, of heads
// [own.begin, own.end), or of all.
std::pair<LinearSlice, LinearSlice> divide_queries(const AttentionConfig& config, Range own,
                                                   LinearSlice qkv) {
  const int64_t head_dim = config.head_dim, kv_size = config.num_kv_heads * head_dim;
  if (qkv.rows.empty()) {
    own = {0, config.num_heads};
    qkv.rows = {{}, {{0, kv_size}}, {{0, kv_size}}};
  }
  std::vector<Range> queries, gates;
  for (int64_t head = own.begin; head < own.end; ++head) {
    const int64_t begin = 2 * head * head_dim;
    queries.push_back({begin, begin + head_dim});
    gates.push_back({begin + head_dim, begin + 2 * head_dim});
  }
  qkv.rows[0] = std::move(queries);
  return {std::move(qkv), LinearSlice{.rows = {std::move(gates)}}};
}

class AttentionBlock final : public Block {
 public:
  static Expected<std::unique_ptr<Block>> load(const WeightLoader& loader,
                                               const std::string& prefix,
                                               const AttentionConfig& config) {
    auto heads = HeadShare::of(loader, prefix, config);
    if (!heads) return forward_error(heads);
    auto block =
        std::unique_ptr<AttentionBlock>(new AttentionBlock(config, *heads, loader.kv_type));
    if (block->share_ == BlockShare::none) return block;
    if (Status valid = block->shape(block->layout(kernels::kTokenBlock, 1)).validate(); !valid) {
      return error(valid.error().code, "{}: {}", loader.checkpoint.path().string(),
                   valid.error().message);
    }
    const int64_t head_dim = config.head_dim;
    const int64_t q_size = config.num_heads * head_dim, kv_size = config.num_kv_heads * head_dim;
    std::vector<int64_t> qkv_sizes = {q_size, kv_size, kv_size};
    if (config.qkv_names.size() == 1) qkv_sizes = {q_size + 2 * kv_size};
    std::vector<RowOrder> orders;
    if (config.interleaved_rope && config.rope) {
      TW_CHECK(config.qkv_names.size() == 3 &&
               (config.qk_norm == QkNormKind::none || config.qk_norm == QkNormKind::unweighted));
      const int64_t rotary_dim = config.rope->rotary_dim();
      orders = {{config.num_heads, rotary_dim}, {config.num_kv_heads, rotary_dim}, {}};
    }
    LoadSequence load(loader, prefix + ".");
    const int64_t input_size = config.input_size > 0 ? config.input_size : config.hidden_size;
    LinearSlice qkv_slice = heads->qkv_slice(config);
    if (config.output_gate) {
      TW_CHECK(config.qkv_names.size() == 3 && orders.empty());
      qkv_sizes[0] = 2 * q_size;
      LinearSlice gate_slice;
      std::tie(qkv_slice, gate_slice) = divide_queries(config, heads->heads, std::move(qkv_slice));
      load.linear({config.qkv_names[0]}, input_size, {2 * q_size}, config.qkv_bias,
                  block->gate_proj_.emplace(), {}, gate_slice);
    }
    load.linear(config.qkv_names, input_size, qkv_sizes, config.qkv_bias, block->qkv_proj_, orders,
                qkv_slice);
    // Ranks' outputs are added: one of them brings the bias.
    load.linear({config.output_name}, q_size, {config.hidden_size},
                config.output_bias && loader.shard.rank == 0, block->o_proj_, {},
                heads->output_slice(config));
    if (config.qk_norm == QkNormKind::unweighted) {
      const std::vector<float> ones(static_cast<size_t>(head_dim), 1.0f);
      block->qk_norm_ = {ones, ones, config.norm_eps};
    } else if (config.qk_norm != QkNormKind::none) {
      const bool per_head = config.qk_norm == QkNormKind::per_head;
      QkNorm& norm = block->qk_norm_;
      norm.epsilon = config.norm_eps;
      load.norm_weight(config.q_norm_name, per_head ? config.head_dim : q_size,
                       config.norm_weight_offset, norm.q_weight);
      load.norm_weight(config.k_norm_name, per_head ? config.head_dim : kv_size,
                       config.norm_weight_offset, norm.k_weight);
    }
    if (!config.sinks_name.empty()) {
      load.vector(config.sinks_name, config.num_heads, block->sinks_);
      if (load.status()) heads->keep_own(block->sinks_);
    }
    if (Status status = load.status(); !status) return forward_error(status);
    if (loader.kv_type == kernels::KvType::fp8_e4m3) {
      if (Status status = block->load_cache_scales(loader, prefix); !status) {
        return forward_error(status);
      }
    }
    return block;
  }

  int64_t cache_bytes_per_token() const override {
    if (share_ == BlockShare::none) return 0;
    return layout(kernels::kTokenBlock, 1).bytes_per_token();
  }

  void copy_page(int64_t from, int64_t to) override {
    if (share_ != BlockShare::none) cache_.copy_page(from, to);
  }

  BlockShare share() const override { return share_; }

  Status record(ForwardRecorder& recorder, ValueId input, ValueId output,
                kernels::Epilogue epilogue) override {
    const ForwardLimits& limits = recorder.limits();
    auto cache = KvCache::allocate(layout(limits.page_size, limits.num_pages));
    if (!cache) return forward_error(cache);
    cache_ = std::move(*cache);

    AttentionLayer layer{shape(cache_.layout()), cache_, nullptr, qk_norm_};
    layer.key_scale = key_scale_;
    layer.value_scale = value_scale_;
    layer.temperature = config_.temperature;
    if (!sinks_.empty()) layer.sinks = sinks_.data();
    if (config_.rope) {
      auto table = recorder.rope_table(*config_.rope);
      if (!table) return forward_error(table);
      layer.rope = std::move(*table);
    }
    const ValueId qkv = recorder.shared_value("qkv", q_size() + 2 * kv_size());
    const ValueId attended = recorder.shared_value("attended", q_size());
    qkv_proj_.record(recorder.plan(), recorder.prepared(), input, qkv);
    recorder.attention().record(layer, qkv, attended);
    if (gate_proj_) {
      const ValueId gate = recorder.shared_value("attention_gate", q_size());
      gate_proj_->record(recorder.plan(), recorder.prepared(), input, gate);
      record_gate(recorder.plan(), recorder.kernels(), kernels::Activation::sigmoid, gate, 0,
                  attended);
    }
    o_proj_.record(recorder.plan(), recorder.prepared(), attended, output, epilogue);
    return {};
  }

 private:
  AttentionBlock(const AttentionConfig& config, const HeadShare& heads, kernels::KvType kv_type)
      : config_(config), kv_type_(kv_type) {
    if (heads.is_whole) return;
    config_.num_heads = static_cast<int32_t>(heads.heads.size());
    config_.num_kv_heads = static_cast<int32_t>(heads.kv_heads.size());
    if (heads.heads.empty()) share_ = BlockShare::none;
  }

  // Calibrated scales, as compressed-tensors (and SGLang), ModelOpt and older exports name them.
  Status load_cache_scales(const WeightLoader& loader, const std::string& prefix) {
    const auto load = [&](const std::string& letter, float& scale) -> Status {
      const std::string projection = prefix + "." + letter + "_proj.";
      auto loaded =
          loader.load_scale({prefix + "." + letter + "_scale", projection + letter + "_scale",
                             projection + "output_scale"});
      if (!loaded) return forward_error(loaded);
      scale = *loaded;
      return {};
    };
    if (Status status = load("k", key_scale_); !status) return status;
    return load("v", value_scale_);
  }

  int64_t q_size() const { return int64_t{config_.num_heads} * config_.head_dim; }
  int64_t kv_size() const { return int64_t{config_.num_kv_heads} * config_.head_dim; }

  kernels::KvLayout layout(int32_t page_size, int64_t num_pages) const {
    return {config_.num_kv_heads, config_.head_dim, page_size, num_pages, kv_type_};
  }

  kernels::AttentionShape shape(const kernels::KvLayout& layout) const {
    kernels::AttentionShape shape;
    shape.num_heads = config_.num_heads;
    shape.layout = layout;
    shape.scale =
        config_.scale > 0 ? config_.scale : 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    shape.sliding_window = config_.sliding_window;
    shape.soft_cap = config_.soft_cap;
    shape.attention_chunk = config_.attention_chunk;
    return shape;
  }

  AttentionConfig config_;  // of this rank's heads
  kernels::KvType kv_type_;
  BlockShare share_ = BlockShare::part;
  float key_scale_ = 1.0f, value_scale_ = 1.0f;
  Linear qkv_proj_;                  // hidden -> queries, keys, values
  std::optional<Linear> gate_proj_;  // hidden -> gates of the attention's output
  Linear o_proj_;                    // attention output -> hidden
  QkNorm qk_norm_;
  std::vector<float> sinks_;  // [num_heads] or empty
  KvCache cache_;
};

}  // namespace

AttentionConfig AttentionConfig::from(const ModelConfig& config) {
  AttentionConfig attention;
  attention.hidden_size = config.hidden_size;
  attention.num_heads = config.num_attention_heads;
  attention.num_kv_heads = config.num_key_value_heads;
  attention.head_dim = config.head_dim;
  attention.rope = rope_parameters(config, config.rope);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  attention.norm_eps = config.rms_norm_eps;
  return attention;
}

Expected<std::unique_ptr<Block>> load_attention(const WeightLoader& loader,
                                                const std::string& prefix,
                                                const AttentionConfig& config) {
  return AttentionBlock::load(loader, prefix, config);
}

}  // namespace tw
