#include "nn/linear.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "weights/packing.h"
#include "weights/reordered_matrix.h"

namespace tw {
namespace {

using kernels::GemmKernel;
using kernels::PreparedActivations;

// Rows of fp32 activations with their columns in another order.
class OrderColumnsStep final : public Step {
 public:
  OrderColumnsStep(std::span<const int32_t> order, size_t input, RowKind rows, size_t output)
      : order_(order), input_(input), rows_(rows), output_(output) {}

  std::string_view name() const override { return "order_columns"; }

  void run(const StepContext& context) const override {
    const Range rows = context.member.share(num_rows(rows_, context.batch));
    const size_t columns = order_.size();
    const auto* from = reinterpret_cast<const float*>(context.arena + input_);
    auto* to = reinterpret_cast<float*>(context.arena + output_);
    for (auto m = static_cast<size_t>(rows.begin); m < static_cast<size_t>(rows.end); ++m) {
      for (size_t i = 0; i < columns; ++i) {
        to[m * columns + i] = from[m * columns + static_cast<size_t>(order_[i])];
      }
    }
  }

 private:
  std::span<const int32_t> order_;
  size_t input_;
  RowKind rows_;
  size_t output_;
};

// Rows of fp32 activations -> the form that a GEMM kernel reads.
class PrepareStep final : public Step {
 public:
  PrepareStep(const GemmKernel& kernel, size_t input, RowKind rows, int64_t columns, size_t output)
      : kernel_(kernel), input_(input), rows_(rows), columns_(columns), output_(output) {}

  std::string_view name() const override { return "prepare"; }

  void run(const StepContext& context) const override {
    const int64_t m = num_rows(rows_, context.batch);
    const auto* values = reinterpret_cast<const float*>(context.arena + input_);
    kernel_.prepare(dense_matrix(values, m, columns_), context.member.share(m),
                    kernels::layout_prepared_activations(kernel_.activations, m, columns_,
                                                         context.arena + output_));
  }

 private:
  const GemmKernel& kernel_;
  size_t input_;
  RowKind rows_;
  int64_t columns_;
  size_t output_;
};

class GemmStep final : public Step {
 public:
  struct Operands {
    const GemmKernel* kernel = nullptr;
    const kernels::PackedWeight* weight = nullptr;
    const float* bias = nullptr;
    RowKind rows = RowKind::tokens;
    size_t input = 0;            // prepared activations
    size_t output = 0;           // first column of this part
    int64_t output_columns = 0;  // row stride of the output value
    kernels::Epilogue epilogue = kernels::Epilogue::store;
  };

  explicit GemmStep(const Operands& operands) : operands_(operands) {}

  std::string_view name() const override { return operands_.kernel->name; }

  void run(const StepContext& context) const override {
    const Operands& o = operands_;
    const int64_t m = num_rows(o.rows, context.batch);
    if (m == 0) return;
    kernels::GemmArguments arguments;
    arguments.weight = o.weight;
    arguments.a = kernels::layout_prepared_activations(o.kernel->activations, m, o.weight->k(),
                                                       context.arena + o.input);
    arguments.c = {reinterpret_cast<float*>(context.arena + o.output), m, o.weight->n(),
                   o.output_columns};
    arguments.bias = o.bias;
    arguments.epilogue = o.epilogue;
    o.kernel->run(arguments, context.member.share(o.weight->num_panels()));
  }

  StepCost cost(const Batch& batch) const override {
    const int64_t m = num_rows(operands_.rows, batch);
    return {static_cast<int64_t>(operands_.weight->size_bytes()),
            2 * m * operands_.weight->n() * operands_.weight->k()};
  }

 private:
  Operands operands_;
};

}  // namespace

PreparedInputs::Prepared PreparedInputs::prepare(ValueId input, const GemmKernel& kernel,
                                                 std::span<const int32_t> order) {
  const int32_t version = recorder_.version(input);
  for (const Entry& entry : entries_) {
    if (entry.input.index == input.index && entry.format == kernel.activations &&
        entry.version == version && std::ranges::equal(entry.order, order)) {
      return {entry.scratch, entry.format};
    }
  }
  const int64_t columns = recorder_.columns(input);
  const ValueId scratch = scratch_for(kernel.activations, columns);
  // The area now holds this input: what it held before is gone.
  std::erase_if(entries_, [&](const Entry& entry) { return entry.scratch.index == scratch.index; });
  entries_.push_back({input, kernel.activations, scratch, version, order});
  const RowKind rows = recorder_.rows(input);
  ValueId source = input;
  if (!order.empty()) {
    source = ordered_rows_for(columns);
    recorder_.add(std::make_unique<OrderColumnsStep>(order, recorder_.offset(input), rows,
                                                     recorder_.offset(source)),
                  {{input, Split::rows}}, {{source, Split::rows}});
  }
  recorder_.add(std::make_unique<PrepareStep>(kernel, recorder_.offset(source), rows, columns,
                                              recorder_.offset(scratch)),
                {{source, Split::rows}}, {{scratch, Split::rows}});
  return {scratch, kernel.activations};
}

ValueId PreparedInputs::ordered_rows_for(int64_t columns) {
  for (const OrderedRows& rows : ordered_rows_) {
    if (rows.columns == columns) return rows.scratch;
  }
  const ValueId scratch = recorder_.add_scratch(
      static_cast<size_t>(recorder_.max_num_tokens() * columns) * sizeof(float));
  ordered_rows_.push_back({columns, scratch});
  return scratch;
}

ValueId PreparedInputs::scratch_for(kernels::ActivationFormat format, int64_t columns) {
  for (const Area& area : areas_) {
    if (area.format == format && area.columns == columns) return area.scratch;
  }
  const ValueId scratch = recorder_.add_scratch(
      kernels::prepared_activations_size(format, recorder_.max_num_tokens(), columns));
  areas_.push_back({format, columns, scratch});
  return scratch;
}

Expected<Linear> Linear::load(const WeightLoader& loader, const std::vector<std::string>& prefixes,
                              int64_t input_size, const std::vector<int64_t>& output_sizes,
                              bool biases, const std::vector<RowOrder>& row_orders) {
  TW_CHECK(prefixes.size() == output_sizes.size() && loader.scheme != nullptr);
  TW_CHECK(row_orders.empty() || row_orders.size() == prefixes.size());
  const Checkpoint& checkpoint = loader.checkpoint;
  std::vector<std::unique_ptr<StoredMatrix>> owned;
  std::vector<const StoredMatrix*> matrices;
  for (size_t i = 0; i < prefixes.size(); ++i) {
    auto matrix = loader.scheme->open(checkpoint, prefixes[i], output_sizes[i], input_size);
    if (!matrix) return forward_error(matrix);
    if (!row_orders.empty()) {
      *matrix = std::make_unique<ReorderedMatrix>(std::move(*matrix), row_orders[i]);
    }
    matrices.push_back(matrix->get());
    owned.push_back(std::move(*matrix));
  }

  Linear linear;
  linear.input_size_ = input_size;
  for (size_t begin = 0; begin < matrices.size();) {
    size_t end = begin + 1;
    const kernels::WeightFormat format = matrices[begin]->format();
    const std::span<const int32_t> order = matrices[begin]->input_order();
    while (end < matrices.size() && matrices[end]->format() == format &&
           std::ranges::equal(matrices[end]->input_order(), order)) {
      ++end;
    }
    Part part;
    part.input_order.assign(order.begin(), order.end());
    part.column = linear.output_size_;
    part.kernel = &kernels::select_gemm(format, loader.precision, loader.features);
    auto weight = pack({matrices.data() + begin, end - begin}, loader.team);
    if (!weight) {
      return error(weight.error().code, "{}: {}", checkpoint.path().string(),
                   weight.error().message);
    }
    part.weight = std::move(*weight);
    for (size_t i = begin; i < end; ++i) {
      if (biases) {
        auto bias = loader.load_vector(prefixes[i] + ".bias", output_sizes[i],
                                       row_orders.empty() ? RowOrder{} : row_orders[i]);
        if (!bias) return forward_error(bias);
        part.bias.insert(part.bias.end(), bias->begin(), bias->end());
      }
      for (const StoredTensor* tensor : matrices[i]->tensors()) {
        if (loader.on_progress) loader.on_progress(static_cast<int64_t>(tensor->data.size()));
        checkpoint.release(*tensor);
      }
    }
    linear.output_size_ += part.weight.n();
    linear.parts_.push_back(std::move(part));
    begin = end;
  }
  return linear;
}

size_t Linear::size_bytes() const {
  return std::accumulate(parts_.begin(), parts_.end(), size_t{0}, [](size_t sum, const Part& part) {
    return sum + part.weight.size_bytes();
  });
}

void Linear::record(PlanRecorder& recorder, PreparedInputs& prepared, ValueId input, ValueId output,
                    kernels::Epilogue epilogue) const {
  for (const Part& part : parts_) {
    const auto source = prepared.prepare(input, *part.kernel, part.input_order);
    GemmStep::Operands operands;
    operands.kernel = part.kernel;
    operands.weight = &part.weight;
    operands.bias = part.bias.empty() ? nullptr : part.bias.data();
    operands.rows = recorder.rows(output);
    operands.input = recorder.offset(source.scratch);
    operands.output = recorder.offset(output) + static_cast<size_t>(part.column) * sizeof(float);
    operands.output_columns = recorder.columns(output);
    operands.epilogue = epilogue;
    recorder.add(std::make_unique<GemmStep>(operands), {{source.scratch, Split::other}},
                 {{output, Split::other}});
  }
}

}  // namespace tw
