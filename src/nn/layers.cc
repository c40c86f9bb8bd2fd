#include "nn/layers.h"

#include <algorithm>

#include "core/check.h"

namespace tw {
namespace {

template <typename T>
Matrix<T> rows_at(const StepContext& context, size_t offset, int64_t rows, int64_t columns) {
  return dense_matrix(reinterpret_cast<T*>(context.arena + offset), rows, columns);
}

class EmbeddingStep final : public Step {
 public:
  EmbeddingStep(const kernels::EmbeddingKernels& kernels, const kernels::PackedWeight& table,
                float scale, int64_t first_id, size_t output)
      : kernels_(kernels), table_(table), scale_(scale), first_id_(first_id), output_(output) {}

  std::string_view name() const override { return "embedding"; }

  void run(const StepContext& context) const override {
    const int64_t rows = context.batch.num_tokens();
    const Matrix<float> out = rows_at<float>(context, output_, rows, table_.k());
    const Range share = context.member.share(rows);
    for (int64_t row = share.begin; row < share.end; ++row) {
      const int64_t id = context.batch.token_ids[static_cast<size_t>(row)] - first_id_;
      if (id < 0 || id >= table_.n()) {
        std::fill_n(out.row(row), out.cols, 0.0f);
        continue;
      }
      const auto local_id = static_cast<int32_t>(id);
      kernels::EmbeddingArguments arguments;
      arguments.token_ids = &local_id;
      arguments.scale = scale_;
      arguments.out = dense_matrix(out.row(row), 1, out.cols);
      kernels_.packed(arguments, table_, {0, 1});
    }
  }

 private:
  const kernels::EmbeddingKernels& kernels_;
  const kernels::PackedWeight& table_;
  float scale_;
  int64_t first_id_;
  size_t output_;
};

class RmsNormStep final : public Step {
 public:
  using Kernel = void (*)(const kernels::RmsNormArguments& arguments, Range rows);
  struct Operands {
    std::string_view name;
    Kernel kernel = nullptr;
    size_t input = 0, output = 0;
    RowKind rows = RowKind::tokens;
    int64_t columns = 0;
    const float* weight = nullptr;
    float epsilon = 0;
  };

  explicit RmsNormStep(const Operands& operands) : operands_(operands) {}

  std::string_view name() const override { return operands_.name; }

  void run(const StepContext& context) const override {
    const Operands& o = operands_;
    const int64_t rows = num_rows(o.rows, context.batch);
    kernels::RmsNormArguments arguments;
    arguments.x = rows_at<const float>(context, o.input, rows, o.columns);
    arguments.out = rows_at<float>(context, o.output, rows, o.columns);
    arguments.weight = o.weight;
    arguments.epsilon = o.epsilon;
    o.kernel(arguments, context.member.share(rows));
  }

 private:
  Operands operands_;
};

RmsNormStep::Operands rms_norm_operands(const PlanRecorder& recorder, ValueId input,
                                        std::span<const float> weight, float epsilon,
                                        ValueId output) {
  RmsNormStep::Operands operands;
  operands.input = recorder.offset(input);
  operands.output = recorder.offset(output);
  operands.rows = recorder.rows(input);
  operands.columns = recorder.columns(input);
  operands.weight = weight.data();
  operands.epsilon = epsilon;
  TW_CHECK(static_cast<int64_t>(weight.size()) == operands.columns);
  TW_CHECK(recorder.columns(output) == operands.columns);
  return operands;
}

class GatedActivationStep final : public Step {
 public:
  GatedActivationStep(const kernels::ActivationKernels& kernels, kernels::Activation activation,
                      size_t input, size_t output, int64_t columns)
      : kernels_(kernels),
        activation_(activation),
        input_(input),
        output_(output),
        columns_(columns) {}

  std::string_view name() const override { return "gated_activation"; }

  void run(const StepContext& context) const override {
    const int64_t rows = context.batch.num_tokens();
    const auto* gate_up = reinterpret_cast<const float*>(context.arena + input_);
    kernels::GatedActivationArguments arguments;
    arguments.activation = activation_;
    arguments.gate = {gate_up, rows, columns_, 2 * columns_};
    arguments.up = {gate_up + columns_, rows, columns_, 2 * columns_};
    arguments.out = rows_at<float>(context, output_, rows, columns_);
    kernels_.gated(arguments, context.member.share(rows));
  }

 private:
  const kernels::ActivationKernels& kernels_;
  kernels::Activation activation_;
  size_t input_;
  size_t output_;
  int64_t columns_;
};

class GateStep final : public Step {
 public:
  struct Operands {
    kernels::Activation activation;
    size_t gate = 0;  // its first column
    int64_t gate_stride = 0;
    size_t values = 0;
    int64_t columns = 0;
  };

  GateStep(const kernels::ActivationKernels& kernels, const Operands& operands)
      : kernels_(kernels), operands_(operands) {}

  std::string_view name() const override { return "gate"; }

  void run(const StepContext& context) const override {
    const Operands& o = operands_;
    const int64_t rows = context.batch.num_tokens();
    kernels::GatedActivationArguments arguments;
    arguments.activation = o.activation;
    arguments.gate = {reinterpret_cast<const float*>(context.arena + o.gate), rows, o.columns,
                      o.gate_stride};
    arguments.up = rows_at<const float>(context, o.values, rows, o.columns);
    arguments.out = rows_at<float>(context, o.values, rows, o.columns);
    kernels_.gated(arguments, context.member.share(rows));
  }

 private:
  const kernels::ActivationKernels& kernels_;
  Operands operands_;
};

class SoftCapStep final : public Step {
 public:
  SoftCapStep(const kernels::ActivationKernels& kernels, float cap, size_t logits, int64_t columns)
      : kernels_(kernels), cap_(cap), logits_(logits), columns_(columns) {}

  std::string_view name() const override { return "soft_cap"; }

  void run(const StepContext& context) const override {
    const int64_t rows = context.batch.num_logits();
    kernels_.soft_cap({cap_, rows_at<float>(context, logits_, rows, columns_)},
                      context.member.share(columns_));
  }

 private:
  const kernels::ActivationKernels& kernels_;
  float cap_;
  size_t logits_;
  int64_t columns_;
};

class GatherStep final : public Step {
 public:
  GatherStep(size_t input, size_t output, RowKind rows, int64_t columns)
      : input_(input), output_(output), rows_(rows), columns_(columns) {}

  std::string_view name() const override { return "gather"; }

  void run(const StepContext& context) const override {
    const std::span<const int32_t> tokens =
        rows_ == RowKind::logits ? context.batch.logit_tokens : context.batch.state_tokens;
    const auto rows = static_cast<int64_t>(tokens.size());
    const auto from = rows_at<const float>(context, input_, context.batch.num_tokens(), columns_);
    const auto to = rows_at<float>(context, output_, rows, columns_);
    const Range share = context.member.share(rows);
    for (int64_t row = share.begin; row < share.end; ++row) {
      std::copy_n(from.row(tokens[static_cast<size_t>(row)]), columns_, to.row(row));
    }
  }

 private:
  size_t input_;
  size_t output_;
  RowKind rows_;
  int64_t columns_;
};

class ConcatenateStep final : public Step {
 public:
  struct Part {
    size_t offset;
    int64_t columns;
  };
  ConcatenateStep(Part left, Part right, size_t output)
      : left_(left), right_(right), output_(output) {}

  std::string_view name() const override { return "concatenate"; }

  void run(const StepContext& context) const override {
    const int64_t rows = context.batch.num_tokens();
    const auto left = rows_at<const float>(context, left_.offset, rows, left_.columns);
    const auto right = rows_at<const float>(context, right_.offset, rows, right_.columns);
    const auto out = rows_at<float>(context, output_, rows, left.cols + right.cols);
    const Range share = context.member.share(rows);
    for (int64_t row = share.begin; row < share.end; ++row) {
      std::copy_n(left.row(row), left.cols, out.row(row));
      std::copy_n(right.row(row), right.cols, out.row(row) + left.cols);
    }
  }

 private:
  Part left_, right_;
  size_t output_;
};

}  // namespace

LayerKernels LayerKernels::select(const CpuFeatures& features) {
  return {kernels::select_norm(features), kernels::select_activation(features),
          kernels::select_embedding(features)};
}

void record_embedding(PlanRecorder& recorder, const LayerKernels& kernels,
                      const kernels::PackedWeight& table, float scale, ValueId output,
                      int64_t first_id) {
  TW_CHECK(recorder.columns(output) == table.k());
  recorder.add(std::make_unique<EmbeddingStep>(kernels.embedding, table, scale, first_id,
                                               recorder.offset(output)),
               {}, {{output, Split::rows}});
}

void record_rms_norm(PlanRecorder& recorder, const LayerKernels& kernels, ValueId input,
                     std::span<const float> weight, float epsilon, ValueId output) {
  auto operands = rms_norm_operands(recorder, input, weight, epsilon, output);
  operands.name = "rms_norm";
  operands.kernel = kernels.norm.rms_norm;
  recorder.add(std::make_unique<RmsNormStep>(operands), {{input, Split::rows}},
               {{output, Split::rows}});
}

void record_add_normed(PlanRecorder& recorder, const LayerKernels& kernels, ValueId input,
                       std::span<const float> weight, float epsilon, ValueId output) {
  auto operands = rms_norm_operands(recorder, input, weight, epsilon, output);
  operands.name = "add_normed";
  operands.kernel = kernels.norm.add_normed;
  recorder.add(std::make_unique<RmsNormStep>(operands), {{input, Split::rows}},
               {{output, Split::rows}});
}

void record_gated_activation(PlanRecorder& recorder, const LayerKernels& kernels,
                             kernels::Activation activation, ValueId gate_up, ValueId output) {
  const int64_t columns = recorder.columns(output);
  TW_CHECK(recorder.columns(gate_up) == 2 * columns);
  recorder.add(std::make_unique<GatedActivationStep>(kernels.activation, activation,
                                                     recorder.offset(gate_up),
                                                     recorder.offset(output), columns),
               {{gate_up, Split::rows}}, {{output, Split::rows}});
}

void record_gate(PlanRecorder& recorder, const LayerKernels& kernels,
                 kernels::Activation activation, ValueId gate, int64_t gate_column,
                 ValueId values) {
  GateStep::Operands operands;
  operands.activation = activation;
  operands.gate = recorder.offset(gate) + static_cast<size_t>(gate_column) * sizeof(float);
  operands.gate_stride = recorder.columns(gate);
  operands.values = recorder.offset(values);
  operands.columns = recorder.columns(values);
  TW_CHECK(gate_column + operands.columns <= operands.gate_stride);
  recorder.add(std::make_unique<GateStep>(kernels.activation, operands), {{gate, Split::rows}},
               {{values, Split::rows}});
}

void record_soft_cap(PlanRecorder& recorder, const LayerKernels& kernels, float cap,
                     ValueId logits) {
  recorder.add(std::make_unique<SoftCapStep>(kernels.activation, cap, recorder.offset(logits),
                                             recorder.columns(logits)),
               {}, {{logits, Split::other}});
}

void record_concatenate(PlanRecorder& recorder, ValueId left, ValueId right, ValueId output) {
  TW_CHECK(recorder.columns(output) == recorder.columns(left) + recorder.columns(right));
  const auto part = [&](ValueId value) -> ConcatenateStep::Part {
    return {recorder.offset(value), recorder.columns(value)};
  };
  recorder.add(std::make_unique<ConcatenateStep>(part(left), part(right), recorder.offset(output)),
               {{left, Split::rows}, {right, Split::rows}}, {{output, Split::rows}});
}

void record_gather_rows(PlanRecorder& recorder, ValueId input, ValueId output) {
  const int64_t columns = recorder.columns(input);
  TW_CHECK(recorder.columns(output) == columns && recorder.rows(output) != RowKind::tokens);
  recorder.add(std::make_unique<GatherStep>(recorder.offset(input), recorder.offset(output),
                                            recorder.rows(output), columns),
               {{input, Split::other}}, {{output, Split::rows}});
}

}  // namespace tw
