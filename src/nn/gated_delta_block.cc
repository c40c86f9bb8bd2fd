#include "nn/gated_delta_block.h"

#include <algorithm>
#include <cmath>

#include "core/buffer.h"
#include "core/check.h"
#include "nn/forward_recorder.h"
#include "nn/head_share.h"
#include "nn/load_sequence.h"
#include "weights/storage_type.h"

namespace tw {
namespace {

using kernels::DeltaRuleShape;

constexpr int64_t kStateTaps = kernels::kConvolutionTaps - 1;
constexpr float kLengthEpsilon = 1e-6f;

// What the block's steps work on; offsets are of the arena. Columns of `mixed`: queries, keys,
// values, z. Columns of `gates`: b, a, which become beta and decay.
struct DeltaOperands {
  const kernels::DeltaNetKernels* kernels = nullptr;
  const kernels::NormKernels* norms = nullptr;
  DeltaRuleShape shape;
  size_t mixed = 0, gates = 0, output = 0;
  const float* convolution = nullptr;
  float* convolution_states = nullptr;
  float* states = nullptr;
  const float *q_weight = nullptr, *k_weight = nullptr;      // [key_dim]: of the normalized lengths
  const float *negative_rate = nullptr, *dt_bias = nullptr;  // [num_heads]
  const float* norm_weight = nullptr;                        // [value_dim]
  float norm_eps = 0;

  int64_t key_size() const { return int64_t{shape.num_key_heads} * shape.key_dim; }
  int64_t value_size() const { return int64_t{shape.num_heads} * shape.value_dim; }
  int64_t convolved() const { return 2 * key_size() + value_size(); }
  int64_t mixed_columns() const { return convolved() + value_size(); }

  template <typename T>
  Matrix<T> mixed_at(const StepContext& context, int64_t column, int64_t columns) const {
    return {reinterpret_cast<T*>(context.arena + mixed) + column, context.batch.num_tokens(),
            columns, mixed_columns()};
  }
  template <typename T>
  Matrix<T> gates_at(const StepContext& context, int64_t column) const {
    const int64_t heads = shape.num_heads;
    return {reinterpret_cast<T*>(context.arena + gates) + column, context.batch.num_tokens(), heads,
            2 * heads};
  }
  Matrix<float> output_at(const StepContext& context) const {
    return dense_matrix(reinterpret_cast<float*>(context.arena + output),
                        context.batch.num_tokens(), value_size());
  }
};

kernels::StateBatch state_batch(const Batch& batch) {
  TW_CHECK(batch.state_slots.size() == batch.context_lens.size());
  return {batch.positions, batch.seq_starts, batch.state_slots};
}

class DeltaStep : public Step {
 public:
  explicit DeltaStep(const DeltaOperands& operands) : o(operands) {}

 protected:
  const DeltaOperands& o;
};

class ConvolutionStep final : public DeltaStep {
 public:
  using DeltaStep::DeltaStep;
  std::string_view name() const override { return "convolution"; }

  void run(const StepContext& context) const override {
    kernels::ConvolutionArguments arguments;
    arguments.batch = state_batch(context.batch);
    arguments.x = o.mixed_at<float>(context, 0, o.convolved());
    arguments.weight = o.convolution;
    arguments.states = o.convolution_states;
    const Range vectors = context.member.share((o.convolved() + 15) / 16);
    const int64_t end = std::min(16 * vectors.end, o.convolved());
    o.kernels->convolve(arguments, {std::min(16 * vectors.begin, end), end});
  }
};

// Lengths of queries and keys, and the gates. A few numbers per head, so the plain functions of the
// library do, which are the same for every instruction set.
class DeltaGatesStep final : public DeltaStep {
 public:
  using DeltaStep::DeltaStep;
  std::string_view name() const override { return "delta_gates"; }

  void run(const StepContext& context) const override {
    const auto q = o.mixed_at<float>(context, 0, o.key_size());
    const auto k = o.mixed_at<float>(context, o.key_size(), o.key_size());
    const auto beta = o.gates_at<float>(context, 0);
    const auto decay = o.gates_at<float>(context, o.shape.num_heads);
    const Range tokens = context.member.share(context.batch.num_tokens());
    for (int64_t token = tokens.begin; token < tokens.end; ++token) {
      normalize(q.row(token), o.q_weight);
      normalize(k.row(token), o.k_weight);
      for (int64_t head = 0; head < o.shape.num_heads; ++head) {
        float& b = beta.row(token)[head];
        float& a = decay.row(token)[head];
        b = 1.0f / (1.0f + std::exp(-b));
        a = std::exp(o.negative_rate[head] * softplus(a + o.dt_bias[head]));
      }
    }
  }

 private:
  static float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

  // x / sqrt(x^2 + epsilon) is an RMSNorm whose weight has 1 / sqrt(key_dim) in it.
  void normalize(float* heads, const float* weight) const {
    const int64_t rows = o.shape.num_key_heads, width = o.shape.key_dim;
    kernels::RmsNormArguments arguments;
    arguments.x = dense_matrix(static_cast<const float*>(heads), rows, width);
    arguments.out = dense_matrix(heads, rows, width);
    arguments.weight = weight;
    arguments.epsilon = kLengthEpsilon / static_cast<float>(width);
    o.norms->rms_norm(arguments, {0, rows});
  }
};

// Threads divide the work of all sequences, a sequence's items counting by its tokens.
class DeltaRuleStep final : public DeltaStep {
 public:
  using DeltaStep::DeltaStep;
  std::string_view name() const override { return "delta_rule"; }

  void run(const StepContext& context) const override {
    const int64_t key_size = o.key_size();
    kernels::DeltaRuleArguments arguments;
    arguments.shape = o.shape;
    arguments.batch = state_batch(context.batch);
    arguments.q = o.mixed_at<const float>(context, 0, key_size);
    arguments.k = o.mixed_at<const float>(context, key_size, key_size);
    arguments.v = o.mixed_at<const float>(context, 2 * key_size, o.value_size());
    arguments.beta = o.gates_at<const float>(context, 0);
    arguments.decay = o.gates_at<const float>(context, o.shape.num_heads);
    arguments.out = o.output_at(context);
    arguments.states = o.states;
    const int64_t num_items = o.shape.num_items();
    const Range share = context.member.share(context.batch.num_tokens() * num_items);
    for (int32_t seq = 0; seq < context.batch.num_seqs(); ++seq) {
      const int64_t begin = context.batch.seq_starts[static_cast<size_t>(seq)];
      const int64_t tokens = context.batch.seq_starts[static_cast<size_t>(seq) + 1] - begin;
      // An item is the member's whose share its first unit of work lies in.
      const auto first_item_from = [&](int64_t work) {
        return std::clamp((work - begin * num_items + tokens - 1) / tokens, int64_t{0}, num_items);
      };
      const Range items = {first_item_from(share.begin), first_item_from(share.end)};
      if (items.begin < items.end) o.kernels->apply_delta_rule(arguments, seq, items);
    }
  }

  StepCost cost(const Batch& batch) const override {
    const int64_t size = o.shape.state_size();
    return {2 * batch.num_seqs() * size * int64_t{sizeof(float)},
            7 * int64_t{batch.num_tokens()} * size};
  }
};

class DeltaNormStep final : public DeltaStep {
 public:
  using DeltaStep::DeltaStep;
  std::string_view name() const override { return "delta_norm"; }

  void run(const StepContext& context) const override {
    const Range tokens = context.member.share(context.batch.num_tokens());
    const Matrix<float> output = o.output_at(context);
    const int64_t heads = o.shape.num_heads;
    kernels::RmsNormArguments arguments;
    arguments.out = dense_matrix(output.data, output.rows * heads, int64_t{o.shape.value_dim});
    arguments.x = read_only(arguments.out);
    arguments.weight = o.norm_weight;
    arguments.epsilon = o.norm_eps;
    o.norms->rms_norm(arguments, {tokens.begin * heads, tokens.end * heads});
  }
};

// Where what a rank computes lies in the tensors of all heads. Ranks divide value heads; a key head
// is held by each that has value heads of its group (nn/head_share.h).
class DeltaRows {
 public:
  DeltaRows(const DeltaRuleShape& all, const HeadShare& share)
      : all_(all), heads_(share.is_whole ? Range{0, all.num_heads} : share.heads) {
    key_heads_ = share.is_whole ? HeadShare::of(heads_, all.num_heads, all.num_key_heads).kv_heads
                                : share.kv_heads;
  }

  DeltaRuleShape own_shape() const {
    DeltaRuleShape own = all_;
    own.num_heads = static_cast<int32_t>(heads_.size());
    own.num_key_heads = static_cast<int32_t>(key_heads_.size());
    return own;
  }

  // Of a tensor that has for each key head, in `stride` rows each, some from `offset` on.
  std::vector<Range> of_keys(int64_t stride, int64_t offset) const {
    std::vector<Range> rows;
    for (const int64_t head : key_heads_) {
      const int64_t begin = head * stride + offset;
      rows.push_back({begin, begin + all_.key_dim});
    }
    return rows;
  }
  // Of one that has for each key head, in `stride` rows each, `size` for each of its value heads
  // from `offset` on.
  std::vector<Range> of_values(int64_t stride, int64_t offset, int64_t size) const {
    std::vector<Range> rows;
    for (int64_t head = heads_.begin; head < heads_.end; ++head) {
      const int64_t begin = head / group() * stride + offset + head % group() * size;
      rows.push_back({begin, begin + size});
    }
    return rows;
  }
  // Queries, keys and values one behind the other, as convolved.
  std::vector<Range> convolved() const {
    const int64_t keys = int64_t{all_.num_key_heads} * all_.key_dim;
    return joined({of_keys(all_.key_dim, 0), of_keys(all_.key_dim, keys), values(2 * keys)});
  }
  std::vector<Range> values(int64_t offset) const {
    return {{offset + heads_.begin * all_.value_dim, offset + heads_.end * all_.value_dim}};
  }
  // Of a row per value head.
  std::vector<Range> heads() const { return {heads_}; }
  int64_t group() const { return all_.num_heads / all_.num_key_heads; }

  static std::vector<Range> joined(std::initializer_list<std::vector<Range>> parts) {
    std::vector<Range> rows;
    for (const std::vector<Range>& part : parts) rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }

 private:
  const DeltaRuleShape all_;
  const Range heads_;
  std::vector<int64_t> key_heads_;
};

class GatedDeltaBlock final : public Block {
 public:
  static Expected<std::unique_ptr<Block>> load(const WeightLoader& loader,
                                               const std::string& prefix,
                                               const GatedDeltaConfig& config) {
    auto share = share_of_heads(loader, prefix, config);
    if (!share) return forward_error(share);
    const DeltaRuleShape& shape = config.shape;
    const DeltaRows own(shape, *share);
    auto block = std::unique_ptr<GatedDeltaBlock>(new GatedDeltaBlock(config, own));
    if (block->share() == BlockShare::none) return block;
    LoadSequence load(loader, prefix + ".");
    block->load_projections(loader, load, prefix + ".", config, own);
    std::vector<float> rates;
    load.vector("A_log", shape.num_heads, rates);
    load.vector("dt_bias", shape.num_heads, block->dt_bias_);
    load.norm_weight("norm", shape.value_dim, 0.0f, block->norm_weight_);
    if (Status status = load.status(); !status) return forward_error(status);
    share->keep_own(rates);
    share->keep_own(block->dt_bias_);
    for (const float rate : rates) block->negative_rate_.push_back(-std::exp(rate));
    if (Status status = block->load_convolution(loader, prefix + ".conv1d.weight", config, own);
        !status) {
      return forward_error(status);
    }
    const auto key_dim = static_cast<size_t>(shape.key_dim);
    const float inverse = 1.0f / static_cast<float>(shape.key_dim);
    block->q_weight_.assign(key_dim, inverse);
    block->k_weight_.assign(key_dim, std::sqrt(inverse));
    return block;
  }

  BlockShare share() const override {
    return config_.shape.num_heads > 0 ? BlockShare::part : BlockShare::none;
  }

  int64_t state_bytes_per_sequence() const override {
    return (convolution_state_size() + config_.shape.state_size()) * int64_t{sizeof(float)};
  }

  Status record(ForwardRecorder& recorder, ValueId input, ValueId output,
                kernels::Epilogue epilogue) override {
    const int64_t slots = recorder.limits().max_num_seqs;
    auto states = Buffer::allocate(static_cast<size_t>(slots * state_bytes_per_sequence()));
    if (!states) return forward_error(states);
    states_ = std::move(*states);

    PlanRecorder& plan = recorder.plan();
    DeltaOperands& o = operands_;
    o.kernels = &kernels::select_delta_net(recorder.features());
    o.norms = &recorder.kernels().norm;
    o.states = states_.as<float>();
    o.convolution_states = o.states + slots * config_.shape.state_size();
    o.convolution = convolution_.data();
    o.q_weight = q_weight_.data();
    o.k_weight = k_weight_.data();
    o.negative_rate = negative_rate_.data();
    o.dt_bias = dt_bias_.data();
    o.norm_weight = norm_weight_.data();
    const ValueId mixed = recorder.shared_value("delta_mixed", o.mixed_columns());
    const ValueId gates = recorder.shared_value("delta_gates", 2 * o.shape.num_heads);
    const ValueId values = recorder.shared_value("delta_values", o.value_size());
    o.mixed = plan.offset(mixed);
    o.gates = plan.offset(gates);
    o.output = plan.offset(values);

    mixed_proj_.record(plan, recorder.prepared(), input, mixed);
    gates_proj_.record(plan, recorder.prepared(), input, gates);
    plan.add(std::make_unique<ConvolutionStep>(o), {}, {{mixed, Split::other}});
    plan.add(std::make_unique<DeltaGatesStep>(o), {}, {{mixed, Split::rows}, {gates, Split::rows}});
    plan.add(std::make_unique<DeltaRuleStep>(o), {{mixed, Split::other}, {gates, Split::other}},
             {{values, Split::other}});
    plan.add(std::make_unique<DeltaNormStep>(o), {}, {{values, Split::rows}});
    record_gate(plan, recorder.kernels(), kernels::Activation::silu, mixed, o.convolved(), values);
    out_proj_.record(plan, recorder.prepared(), values, output, epilogue);
    return {};
  }

 private:
  GatedDeltaBlock(const GatedDeltaConfig& config, const DeltaRows& own) : config_(config) {
    config_.shape = own.own_shape();
    operands_.shape = config_.shape;
    operands_.norm_eps = config.norm_eps;
  }

  // Value heads are divided where out_proj's format allows its columns to be.
  static Expected<HeadShare> share_of_heads(const WeightLoader& loader, const std::string& prefix,
                                            const GatedDeltaConfig& config) {
    if (loader.shard.is_whole()) return HeadShare{};
    const int64_t heads = config.shape.num_heads, value_dim = config.shape.value_dim;
    const int64_t group = heads / config.shape.num_key_heads;
    auto columns = loader.share_of_columns(prefix + ".out_proj", config.hidden_size,
                                           heads * value_dim, {group * value_dim, value_dim});
    if (!columns) return forward_error(columns);
    return HeadShare::of({columns->begin / value_dim, columns->end / value_dim}, heads,
                         config.shape.num_key_heads);
  }

  int64_t convolution_state_size() const { return kStateTaps * operands_.convolved(); }

  // `all`: of all ranks.
  void load_projections(const WeightLoader& loader, LoadSequence& load, const std::string& prefix,
                        const GatedDeltaConfig& all, const DeltaRows& own) {
    const DeltaRuleShape& shape = all.shape;
    const int64_t heads = shape.num_heads, hidden = all.hidden_size;
    const int64_t values = heads * shape.value_dim;
    const int64_t convolved = 2 * int64_t{shape.num_key_heads} * shape.key_dim + values;
    // The gates decide what states forget: they read fp32, as routers do.
    WeightLoader exact = loader;
    exact.precision = kernels::ActivationPrecision::f32;
    LoadSequence load_gates(exact, prefix);
    if (all.is_grouped) {
      const int64_t group = own.group(), key = shape.key_dim, value = shape.value_dim;
      const int64_t stride = 2 * (key + group * value);
      const auto rows = DeltaRows::joined({own.of_keys(stride, 0), own.of_keys(stride, key),
                                           own.of_values(stride, 2 * key, value),
                                           own.of_values(stride, 2 * key + group * value, value)});
      load.linear({"in_proj_qkvz"}, hidden, {convolved + values}, false, mixed_proj_, {},
                  {.rows = {rows}});
      const auto gates =
          DeltaRows::joined({own.of_values(2 * group, 0, 1), own.of_values(2 * group, group, 1)});
      load_gates.linear({"in_proj_ba"}, hidden, {2 * heads}, false, gates_proj_, {},
                        {.rows = {gates}});
    } else {
      load.linear({"in_proj_qkv", "in_proj_z"}, hidden, {convolved, values}, false, mixed_proj_, {},
                  {.rows = {own.convolved(), own.values(0)}});
      load_gates.linear({"in_proj_b", "in_proj_a"}, hidden, {heads, heads}, false, gates_proj_, {},
                        {.rows = {own.heads(), own.heads()}});
    }
    if (!load_gates.status()) load.fail(Error(load_gates.status().error()));
    LinearSlice slice;
    const Range columns = own.values(0).front();
    if (columns.size() < values) slice.columns = columns;
    load.linear({"out_proj"}, values, {hidden}, false, out_proj_, {}, slice);
  }

  // [channels of all ranks, 1, taps] -> [taps, own channels]
  Status load_convolution(const WeightLoader& loader, const std::string& name,
                          const GatedDeltaConfig& all, const DeltaRows& own) {
    const DeltaRuleShape& shape = all.shape;
    const int64_t channels = 2 * int64_t{shape.num_key_heads} * shape.key_dim +
                             int64_t{shape.num_heads} * shape.value_dim;
    const int64_t taps = kernels::kConvolutionTaps;
    auto tensor = require_shape(loader.checkpoint, name, {channels, 1, taps});
    if (!tensor) return forward_error(tensor);
    if (!is_float((*tensor)->type)) {
      return error(ErrorCode::unsupported, "{}: tensor {} has type {}, expected F32, F16 or BF16",
                   loader.checkpoint.path().string(), name, traits((*tensor)->type).name);
    }
    std::vector<float> stored(static_cast<size_t>(channels * taps));
    dequantize((*tensor)->type, (*tensor)->data.data(), channels * taps, stored.data());
    convolution_.reserve(static_cast<size_t>(operands_.convolved() * taps));
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (const Range& range : own.convolved()) {
        for (int64_t channel = range.begin; channel < range.end; ++channel) {
          convolution_.push_back(stored[static_cast<size_t>(channel * taps + tap)]);
        }
      }
    }
    return {};
  }

  GatedDeltaConfig config_;                     // of this rank's heads
  Linear mixed_proj_;                           // hidden -> queries, keys, values, z
  Linear gates_proj_;                           // hidden -> b, a
  Linear out_proj_;                             // values -> hidden
  std::vector<float> convolution_;              // [taps, channels]
  std::vector<float> q_weight_, k_weight_;      // [key_dim]
  std::vector<float> negative_rate_, dt_bias_;  // [num_heads]
  std::vector<float> norm_weight_;              // [value_dim]
  Buffer states_;                               // of the delta rule, then of the convolution
  DeltaOperands operands_;
};

}  // namespace

Expected<GatedDeltaConfig> GatedDeltaConfig::from(const ModelConfig& config) {
  ConfigFields fields = config.fields();
  const auto size = [&](const char* field, int64_t highest) {
    return static_cast<int32_t>(fields.integer(field, 1, highest));
  };
  GatedDeltaConfig delta;
  delta.hidden_size = config.hidden_size;
  delta.norm_eps = config.rms_norm_eps;
  delta.shape.num_key_heads = size("linear_num_key_heads", 4096);
  delta.shape.num_heads = size("linear_num_value_heads", 4096);
  delta.shape.key_dim = size("linear_key_head_dim", 4096);
  delta.shape.value_dim = size("linear_value_head_dim", 4096);
  const int64_t taps = fields.integer("linear_conv_kernel_dim", 1, 4096, kernels::kConvolutionTaps);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  if (taps != kernels::kConvolutionTaps) {
    return error(ErrorCode::unsupported, "{}: linear_conv_kernel_dim is {}; {} is supported",
                 config.source, taps, kernels::kConvolutionTaps);
  }
  if (config.hidden_act != "silu") {
    return error(ErrorCode::unsupported,
                 "{}: hidden_act is {}; linear attention is supported with silu", config.source,
                 config.hidden_act);
  }
  if (Status valid = delta.shape.validate(); !valid) {
    return error(valid.error().code, "{}: {}", config.source, valid.error().message);
  }
  return delta;
}

Expected<std::unique_ptr<Block>> load_gated_delta(const WeightLoader& loader,
                                                  const std::string& prefix,
                                                  const GatedDeltaConfig& config) {
  return GatedDeltaBlock::load(loader, prefix, config);
}

}  // namespace tw
