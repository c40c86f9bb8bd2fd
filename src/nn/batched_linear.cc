#include "nn/batched_linear.h"

#include <algorithm>

#include "core/check.h"

namespace tw {
namespace {

using kernels::GemmKernel;
using kernels::PreparedActivations;

struct Operands {
  const GemmKernel* kernel = nullptr;
  const kernels::PackedWeight* weight = nullptr;
  int64_t num_heads = 0;
  size_t input = 0;
  int64_t input_stride = 0;  // floats between heads
  size_t prepared = 0;
  size_t output = 0;
  int64_t output_stride = 0;  // floats between heads

  // Rows are heads of tokens: [tokens * num_heads, input size].
  PreparedActivations layout(const StepContext& context) const {
    return kernels::layout_prepared_activations(kernel->activations,
                                                context.batch.num_tokens() * num_heads, weight->k(),
                                                context.arena + prepared);
  }
};

class PrepareHeadsStep final : public Step {
 public:
  explicit PrepareHeadsStep(const Operands& operands) : operands_(operands) {}
  std::string_view name() const override { return "prepare_heads"; }

  void run(const StepContext& context) const override {
    const Operands& o = operands_;
    const Range tokens = context.member.share(context.batch.num_tokens());
    const Matrix<const float> rows = {reinterpret_cast<const float*>(context.arena + o.input),
                                      context.batch.num_tokens() * o.num_heads, o.weight->k(),
                                      o.input_stride};
    o.kernel->prepare(rows, {tokens.begin * o.num_heads, tokens.end * o.num_heads},
                      o.layout(context));
  }

 private:
  Operands operands_;
};

int64_t bytes_per_activation(kernels::ActivationFormat format) {
  switch (format) {
    case kernels::ActivationFormat::f32:
      return sizeof(float);
    case kernels::ActivationFormat::bf16:
      return sizeof(bf16_t);
    case kernels::ActivationFormat::q8:
    case kernels::ActivationFormat::int8:
      return sizeof(int8_t);
  }
  return 0;
}

class MultiplyHeadsStep final : public Step {
 public:
  explicit MultiplyHeadsStep(const Operands& operands) : operands_(operands) {}
  std::string_view name() const override { return "batched_matmul"; }

  void run(const StepContext& context) const override {
    const int64_t panels = operands_.weight->num_panels() / operands_.num_heads;
    const Range share = context.member.share(operands_.weight->num_panels());
    for (int64_t panel = share.begin; panel < share.end;) {
      const int64_t head = panel / panels;
      const int64_t end = std::min((head + 1) * panels, share.end);
      multiply(context, head, {panel, end});
      panel = end;
    }
  }

  StepCost cost(const Batch& batch) const override {
    const int64_t outputs = operands_.weight->n();
    return {static_cast<int64_t>(operands_.weight->size_bytes()),
            2 * batch.num_tokens() * outputs * operands_.weight->k()};
  }

 private:
  void multiply(const StepContext& context, int64_t head, Range panels) const {
    const Operands& o = operands_;
    const int64_t num_tokens = context.batch.num_tokens();
    kernels::GemmArguments arguments;
    arguments.weight = o.weight;
    arguments.a = o.layout(context);
    arguments.a.m = num_tokens;
    arguments.a.values +=
        head * arguments.a.row_stride * bytes_per_activation(o.kernel->activations);
    arguments.a.row_stride *= o.num_heads;
    if (arguments.a.groups != nullptr) {
      arguments.a.groups += head * arguments.a.group_stride;
      arguments.a.group_stride *= o.num_heads;
    }
    // The kernel writes the head's outputs behind those of the heads before it.
    const int64_t output_size = o.weight->n() / o.num_heads;
    arguments.c = {
        reinterpret_cast<float*>(context.arena + o.output) + head * (o.output_stride - output_size),
        num_tokens, o.weight->n(), o.num_heads * o.output_stride};
    o.kernel->run(arguments, panels);
  }

  Operands operands_;
};

}  // namespace

BatchedLinear::BatchedLinear(kernels::PackedWeight weight, int32_t num_heads,
                             const WeightLoader& loader)
    : weight_(std::move(weight)),
      num_heads_(num_heads),
      kernel_(&kernels::select_gemm(weight_.format(), loader.precision, loader.features)) {
  TW_CHECK(num_heads > 0 && weight_.n() % (int64_t{num_heads} * kernels::kTileN) == 0);
}

void BatchedLinear::record(ForwardRecorder& recorder, ValueId input, ValueId output) const {
  PlanRecorder& plan = recorder.plan();
  TW_CHECK(plan.columns(input) % num_heads_ == 0 && plan.columns(output) % num_heads_ == 0);
  Operands operands;
  operands.kernel = kernel_;
  operands.weight = &weight_;
  operands.num_heads = num_heads_;
  operands.input = plan.offset(input);
  operands.input_stride = plan.columns(input) / num_heads_;
  operands.output = plan.offset(output);
  operands.output_stride = plan.columns(output) / num_heads_;
  TW_CHECK(operands.input_stride >= input_size() && operands.output_stride >= output_size());
  const ValueId prepared = recorder.shared_scratch(
      "heads", kernels::prepared_activations_size(
                   kernel_->activations, plan.max_num_tokens() * num_heads_, input_size()));
  operands.prepared = plan.offset(prepared);
  plan.add(std::make_unique<PrepareHeadsStep>(operands), {{input, Split::rows}},
           {{prepared, Split::rows}});
  plan.add(std::make_unique<MultiplyHeadsStep>(operands), {{prepared, Split::other}},
           {{output, Split::other}});
}

}  // namespace tw
