#include "nn/gated_delta_block.h"

#include <algorithm>
#include <cmath>

#include "core/buffer.h"
#include "core/check.h"
#include "nn/forward_recorder.h"
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

// Rows that come group by group, each group with its parts of these sizes, in the order of the
// parts: all queries, all keys and so on.
std::vector<Range> regrouped(int64_t num_groups, std::initializer_list<int64_t> sizes) {
  int64_t group_size = 0;
  for (const int64_t size : sizes) group_size += size;
  std::vector<Range> rows;
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    for (int64_t group = 0; group < num_groups; ++group) {
      const int64_t begin = group * group_size + offset;
      rows.push_back({begin, begin + size});
    }
    offset += size;
  }
  return rows;
}

class GatedDeltaBlock final : public Block {
 public:
  static Expected<std::unique_ptr<Block>> load(const WeightLoader& loader,
                                               const std::string& prefix,
                                               const GatedDeltaConfig& config) {
    auto block = std::unique_ptr<GatedDeltaBlock>(new GatedDeltaBlock(config));
    LoadSequence load(loader, prefix + ".");
    block->load_projections(loader, load, prefix + ".");
    const DeltaRuleShape& shape = config.shape;
    std::vector<float> rates;
    load.vector("A_log", shape.num_heads, rates);
    load.vector("dt_bias", shape.num_heads, block->dt_bias_);
    load.norm_weight("norm", shape.value_dim, 0.0f, block->norm_weight_);
    if (Status status = load.status(); !status) return forward_error(status);
    for (const float rate : rates) block->negative_rate_.push_back(-std::exp(rate));
    if (Status status = block->load_convolution(loader, prefix + ".conv1d.weight"); !status) {
      return forward_error(status);
    }
    const auto key_dim = static_cast<size_t>(shape.key_dim);
    const float inverse = 1.0f / static_cast<float>(shape.key_dim);
    block->q_weight_.assign(key_dim, inverse);
    block->k_weight_.assign(key_dim, std::sqrt(inverse));
    return block;
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
  explicit GatedDeltaBlock(const GatedDeltaConfig& config) : config_(config) {
    operands_.shape = config.shape;
    operands_.norm_eps = config.norm_eps;
  }

  int64_t convolution_state_size() const { return kStateTaps * operands_.convolved(); }

  void load_projections(const WeightLoader& loader, LoadSequence& load, const std::string& prefix) {
    const DeltaRuleShape& shape = config_.shape;
    const int64_t heads = shape.num_heads, groups = shape.num_key_heads;
    const int64_t group = heads / groups, group_values = group * shape.value_dim;
    const int64_t hidden = config_.hidden_size, mixed = operands_.mixed_columns();
    // The gates decide what states forget: they read fp32, as routers do.
    WeightLoader exact = loader;
    exact.precision = kernels::ActivationPrecision::f32;
    LoadSequence load_gates(exact, prefix);
    if (config_.is_grouped) {
      const auto rows =
          regrouped(groups, {shape.key_dim, shape.key_dim, group_values, group_values});
      load.linear({"in_proj_qkvz"}, hidden, {mixed}, false, mixed_proj_, {}, {.rows = {rows}});
      load_gates.linear({"in_proj_ba"}, hidden, {2 * heads}, false, gates_proj_, {},
                        {.rows = {regrouped(groups, {group, group})}});
    } else {
      load.linear({"in_proj_qkv", "in_proj_z"}, hidden,
                  {operands_.convolved(), operands_.value_size()}, false, mixed_proj_);
      load_gates.linear({"in_proj_b", "in_proj_a"}, hidden, {heads, heads}, false, gates_proj_);
    }
    if (!load_gates.status()) load.fail(Error(load_gates.status().error()));
    load.linear({"out_proj"}, operands_.value_size(), {hidden}, false, out_proj_);
  }

  // [channels, 1, taps] -> [taps, channels]
  Status load_convolution(const WeightLoader& loader, const std::string& name) {
    const int64_t channels = operands_.convolved(), taps = kernels::kConvolutionTaps;
    auto tensor = require_shape(loader.checkpoint, name, {channels, 1, taps});
    if (!tensor) return forward_error(tensor);
    if (!is_float((*tensor)->type)) {
      return error(ErrorCode::unsupported, "{}: tensor {} has type {}, expected F32, F16 or BF16",
                   loader.checkpoint.path().string(), name, traits((*tensor)->type).name);
    }
    std::vector<float> stored(static_cast<size_t>(channels * taps));
    dequantize((*tensor)->type, (*tensor)->data.data(), channels * taps, stored.data());
    convolution_.resize(stored.size());
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        convolution_[static_cast<size_t>(tap * channels + channel)] =
            stored[static_cast<size_t>(channel * taps + tap)];
      }
    }
    return {};
  }

  GatedDeltaConfig config_;
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
