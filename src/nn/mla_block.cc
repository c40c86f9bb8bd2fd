#include "nn/mla_block.h"

#include <cmath>

#include "nn/absorbed_projections.h"
#include "nn/forward_recorder.h"
#include "nn/latent_attention.h"
#include "nn/load_sequence.h"
#include "nn/rope.h"

namespace tw {
namespace {

class MlaBlock final : public Block {
 public:
  static Expected<std::unique_ptr<Block>> load(const WeightLoader& loader,
                                               const std::string& prefix, const MlaConfig& config) {
    auto columns =
        loader.share_of_columns(prefix + ".o_proj", config.hidden_size,
                                int64_t{config.num_heads} * config.v_head_dim, {config.v_head_dim});
    if (!columns) return forward_error(columns);
    const Range heads = {columns->begin / config.v_head_dim, columns->end / config.v_head_dim};
    auto block = std::unique_ptr<MlaBlock>(new MlaBlock(config, heads, loader.kv_type));
    if (block->share_ == BlockShare::none) return block;
    if (Status valid = block->shape(block->layout(kernels::kTokenBlock, 1)).validate(); !valid) {
      return error(valid.error().code, "{}: {}", loader.checkpoint.path().string(),
                   valid.error().message);
    }
    LoadSequence load(loader, prefix + ".");
    const int64_t q_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
    const int64_t q_size = config.num_heads * q_dim;
    LinearSlice q_slice, output_slice;
    if (!loader.shard.is_whole()) {
      q_slice.rows = {{{heads.begin * q_dim, heads.end * q_dim}}};
      output_slice.columns = *columns;
    }
    if (config.q_lora_rank > 0) {
      load.linear({"q_a_proj"}, config.hidden_size, {config.q_lora_rank}, config.bias,
                  block->q_a_proj_);
      load.norm_weight("q_a_layernorm", config.q_lora_rank, 0, block->q_a_norm_);
      load.linear({"q_b_proj"}, config.q_lora_rank, {q_size}, false, block->q_proj_, {}, q_slice);
    } else {
      load.linear({"q_proj"}, config.hidden_size, {q_size}, false, block->q_proj_, {}, q_slice);
    }
    load.linear({"kv_a_proj_with_mqa"}, config.hidden_size, {block->row_size()}, config.bias,
                block->kv_a_proj_);
    load.norm_weight("kv_a_layernorm", config.kv_lora_rank, 0, block->kv_a_norm_);
    // Ranks' outputs are added: one of them brings the bias.
    load.linear({"o_proj"}, int64_t{config.num_heads} * config.v_head_dim, {config.hidden_size},
                config.bias && loader.shard.rank == 0, block->o_proj_, {}, output_slice);
    if (Status status = load.status(); !status) return forward_error(status);
    auto absorbed =
        AbsorbedProjections::load(loader, prefix, config.num_heads, config.qk_nope_head_dim,
                                  config.v_head_dim, config.kv_lora_rank, heads);
    if (!absorbed) return forward_error(absorbed);
    block->absorbed_ = std::move(*absorbed);
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
    auto cache = LatentCache::allocate(layout(limits.page_size, limits.num_pages));
    if (!cache) return forward_error(cache);
    cache_ = std::move(*cache);
    auto table = recorder.rope_table(config_.rope);
    if (!table) return forward_error(table);

    const int64_t heads = config_.num_heads;
    PlanRecorder& plan = recorder.plan();
    LatentAttentionValues values;
    values.latents = recorder.shared_value("latents", row_size());
    values.queries = recorder.shared_value("queries", q_size());
    values.absorbed = recorder.shared_value("absorbed", heads * row_size());
    values.output = recorder.shared_value("latent_output", heads * config_.kv_lora_rank);
    const ValueId attended = recorder.shared_value("attended", heads * config_.v_head_dim);

    kv_a_proj_.record(plan, recorder.prepared(), input, values.latents);
    q_proj_.record(plan, recorder.prepared(), query_input(recorder, input), values.queries);
    absorbed_.keys.record(recorder, values.queries, values.absorbed);
    recorder.attention().record_latent(
        {shape(cache_.layout()), cache_, std::move(*table), config_.interleaved_rope,
         config_.qk_nope_head_dim, kv_a_norm_, config_.norm_eps},
        values);
    absorbed_.values.record(recorder, values.output, attended);
    o_proj_.record(plan, recorder.prepared(), attended, output, epilogue);
    return {};
  }

 private:
  MlaBlock(const MlaConfig& config, Range heads, kernels::KvType kv_type)
      : config_(config),
        kv_type_(kv_type),
        share_(heads.empty() ? BlockShare::none : BlockShare::part) {
    config_.num_heads = static_cast<int32_t>(heads.size());
  }

  int64_t q_size() const {
    return int64_t{config_.num_heads} * (config_.qk_nope_head_dim + config_.qk_rope_head_dim);
  }
  int64_t row_size() const { return config_.kv_lora_rank + config_.qk_rope_head_dim; }

  kernels::LatentLayout layout(int32_t page_size, int64_t num_pages) const {
    return {config_.kv_lora_rank, config_.qk_rope_head_dim, page_size, num_pages, kv_type_};
  }
  kernels::LatentAttentionShape shape(const kernels::LatentLayout& layout) const {
    return {config_.num_heads, layout, config_.scale};
  }

  // What the last projection of the queries reads.
  ValueId query_input(ForwardRecorder& recorder, ValueId input) const {
    if (config_.q_lora_rank == 0) return input;
    const ValueId q_a = recorder.shared_value("q_a", config_.q_lora_rank);
    const ValueId normed = recorder.shared_value("q_a_normed", config_.q_lora_rank);
    q_a_proj_.record(recorder.plan(), recorder.prepared(), input, q_a);
    record_rms_norm(recorder.plan(), recorder.kernels(), q_a, q_a_norm_, config_.norm_eps, normed);
    return normed;
  }

  MlaConfig config_;  // of this rank's heads
  kernels::KvType kv_type_;
  BlockShare share_;
  Linear q_a_proj_;               // hidden -> q_lora_rank, where there is one
  std::vector<float> q_a_norm_;   // [q_lora_rank]
  Linear q_proj_;                 // -> heads of [nope, rope]
  Linear kv_a_proj_;              // hidden -> latent, rope
  std::vector<float> kv_a_norm_;  // [kv_lora_rank]
  AbsorbedProjections absorbed_;  // kv_b_proj
  Linear o_proj_;                 // heads of values -> hidden
  LatentCache cache_;
};

}  // namespace

Expected<MlaConfig> MlaConfig::from(const ModelConfig& config) {
  constexpr int64_t kLarge = 1 << 20;
  ConfigFields fields = config.fields();
  MlaConfig mla;
  mla.hidden_size = config.hidden_size;
  mla.num_heads = config.num_attention_heads;
  mla.q_lora_rank = fields.integer("q_lora_rank", 1, kLarge, 0);
  mla.kv_lora_rank = static_cast<int32_t>(fields.integer("kv_lora_rank", 1, kLarge));
  mla.qk_nope_head_dim = static_cast<int32_t>(fields.integer("qk_nope_head_dim", 1, kLarge));
  mla.qk_rope_head_dim = static_cast<int32_t>(fields.integer("qk_rope_head_dim", 2, kLarge));
  mla.v_head_dim = static_cast<int32_t>(fields.integer("v_head_dim", 1, kLarge));
  if (!fields.status()) return tl::unexpected(fields.status().error());
  mla.bias = config.attention_bias;
  mla.norm_eps = config.rms_norm_eps;
  mla.rope = rope_parameters(config, config.rope);
  mla.rope.head_dim = mla.qk_rope_head_dim;
  mla.rope.partial_rotary_factor = 1.0f;
  mla.scale = 1.0f / std::sqrt(static_cast<float>(mla.qk_nope_head_dim + mla.qk_rope_head_dim));
  const double all_dim = config.rope.mscale_all_dim.value_or(0.0);
  if (config.rope.rope_type != "default" && all_dim > 0 && config.rope.factor > 1) {
    const auto mscale = static_cast<float>(0.1 * all_dim * std::log(config.rope.factor) + 1.0);
    mla.scale *= mscale * mscale;
  }
  return mla;
}

Expected<std::unique_ptr<Block>> load_mla(const WeightLoader& loader, const std::string& prefix,
                                          const MlaConfig& config) {
  return MlaBlock::load(loader, prefix, config);
}

}  // namespace tw
