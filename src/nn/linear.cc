#include "nn/linear.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "nn/lora_steps.h"
#include "weights/packing.h"
#include "weights/reordered_matrix.h"
#include "weights/sliced_matrix.h"

namespace tw {
namespace {

using kernels::GemmKernel;
using kernels::PreparedActivations;

// The member's share of all rows, as far as it lies in the part: steps on parts stay split by rows.
Range share_of_part(const StepContext& context, RowPart part, RowKind rows) {
  const Range share = context.member.share(num_rows(rows, context.batch));
  const Range wanted = row_range(part, rows, context.batch);
  const int64_t begin = std::max(share.begin, wanted.begin);
  return {begin, std::max(begin, std::min(share.end, wanted.end))};
}

Matrix<float> slice_rows(Matrix<float> matrix, Range rows) {
  return {matrix.row(rows.begin), rows.end - rows.begin, matrix.cols, matrix.row_stride};
}

// Rows of fp32 activations with their columns in another order.
class OrderColumnsStep final : public Step {
 public:
  OrderColumnsStep(std::span<const int32_t> order, size_t input, RowKind rows, RowPart part,
                   size_t output)
      : order_(order), input_(input), rows_(rows), part_(part), output_(output) {}

  std::string_view name() const override { return "order_columns"; }

  void run(const StepContext& context) const override {
    const Range rows = share_of_part(context, part_, rows_);
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
  RowPart part_;
  size_t output_;
};

// Rows of fp32 activations -> the form that a GEMM kernel reads.
class PrepareStep final : public Step {
 public:
  PrepareStep(const GemmKernel& kernel, size_t input, RowKind rows, RowPart part, int64_t columns,
              size_t output)
      : kernel_(kernel),
        input_(input),
        rows_(rows),
        part_(part),
        columns_(columns),
        output_(output) {}

  std::string_view name() const override { return "prepare"; }

  void run(const StepContext& context) const override {
    const int64_t m = num_rows(rows_, context.batch);
    const auto* values = reinterpret_cast<const float*>(context.arena + input_);
    kernel_.prepare(dense_matrix(values, m, columns_), share_of_part(context, part_, rows_),
                    kernels::layout_prepared_activations(kernel_.activations, m, columns_,
                                                         context.arena + output_));
  }

 private:
  const GemmKernel& kernel_;
  size_t input_;
  RowKind rows_;
  RowPart part_;
  int64_t columns_;
  size_t output_;
};

// One pass over the weight for each class of rows that has its own kernel.
class GemmStep final : public Step {
 public:
  struct Pass {
    RowPart part = RowPart::all;
    const GemmKernel* kernel = nullptr;
    size_t input = 0;  // prepared activations
  };
  struct Operands {
    Pass passes[2];
    int num_passes = 1;
    const kernels::PackedWeight* weight = nullptr;
    const float* bias = nullptr;
    RowKind rows = RowKind::tokens;
    size_t output = 0;           // first column of this part
    int64_t output_columns = 0;  // row stride of the output value
    kernels::Epilogue epilogue = kernels::Epilogue::store;
  };

  explicit GemmStep(const Operands& operands) : operands_(operands) {}

  std::string_view name() const override { return operands_.passes[0].kernel->name; }

  void run(const StepContext& context) const override {
    const Operands& o = operands_;
    const int64_t m = num_rows(o.rows, context.batch);
    const Matrix<float> c = {reinterpret_cast<float*>(context.arena + o.output), m, o.weight->n(),
                             o.output_columns};
    const Range panels = context.member.share(o.weight->num_panels());
    for (const Pass& pass : std::span(o.passes, static_cast<size_t>(o.num_passes))) {
      const Range rows = row_range(pass.part, o.rows, context.batch);
      if (rows.begin == rows.end) continue;
      kernels::GemmArguments arguments;
      arguments.weight = o.weight;
      arguments.a =
          slice_rows(kernels::layout_prepared_activations(
                         pass.kernel->activations, m, o.weight->k(), context.arena + pass.input),
                     rows);
      arguments.c = slice_rows(c, rows);
      arguments.bias = o.bias;
      arguments.epilogue = o.epilogue;
      pass.kernel->run(arguments, panels);
    }
  }

  StepCost cost(const Batch& batch) const override {
    const int64_t m = num_rows(operands_.rows, batch);
    return {static_cast<int64_t>(operands_.weight->size_bytes()),
            2 * m * operands_.weight->n() * operands_.weight->k()};
  }

 private:
  Operands operands_;
};

// What adapters can change of a Linear: layers of the decoder's blocks. The embedding and the
// output matrix are left alone: their rows are not those of the batch's tokens.
LoraSite lora_site(const std::shared_ptr<LoraLayers>& layers,
                   const std::vector<std::string>& prefixes, int64_t input_size,
                   const std::vector<int64_t>& output_sizes,
                   const std::vector<RowOrder>& row_orders, const LinearSlice& slice) {
  LoraSite site{layers, {}};
  int64_t column = 0;
  for (size_t i = 0; i < prefixes.size(); ++i) {
    if (prefixes[i].find(".layers.") == std::string::npos) continue;
    LoraLayer layer{.module = prefixes[i],
                    .input_size = input_size,
                    .output_size = output_sizes[i],
                    .row_order = row_orders.empty() ? RowOrder{} : row_orders[i],
                    .rows = slice.rows.empty() ? std::vector<Range>{} : slice.rows[i],
                    .columns = slice.columns};
    const int64_t size = layer.own_output_size();
    site.outputs.push_back({layers->add(std::move(layer)), column});
    column += size;
  }
  return site;
}

}  // namespace

PreparedActivations slice_rows(PreparedActivations a, Range rows) {
  const int64_t element_size = kernels::element_size(a.format);
  a.values += rows.begin * a.row_stride * element_size;
  if (a.groups != nullptr) a.groups += rows.begin * a.group_stride;
  a.m = rows.end - rows.begin;
  return a;
}

PreparedInputs::Prepared PreparedInputs::prepare(ValueId input, const GemmKernel& kernel,
                                                 std::span<const int32_t> order, RowPart part) {
  const int32_t version = recorder_.version(input);
  for (const Entry& entry : entries_) {
    if (entry.input.index == input.index && entry.format == kernel.activations &&
        entry.version == version && (entry.part == RowPart::all || entry.part == part) &&
        std::ranges::equal(entry.order, order)) {
      return {entry.scratch, entry.format};
    }
  }
  const int64_t columns = recorder_.columns(input);
  const ValueId scratch = scratch_for(kernel.activations, columns);
  // The area now holds this input: what it held before is gone.
  std::erase_if(entries_, [&](const Entry& entry) { return entry.scratch.index == scratch.index; });
  entries_.push_back({input, kernel.activations, scratch, version, order, part});
  const RowKind rows = recorder_.rows(input);
  ValueId source = input;
  if (!order.empty()) {
    // Where rows are put in order before they are prepared.
    source = scratch_of(static_cast<size_t>(recorder_.max_num_tokens() * columns) * sizeof(float));
    recorder_.add(std::make_unique<OrderColumnsStep>(order, recorder_.offset(input), rows, part,
                                                     recorder_.offset(source)),
                  {{input, Split::rows}}, {{source, Split::rows}});
  }
  recorder_.add(std::make_unique<PrepareStep>(kernel, recorder_.offset(source), rows, part, columns,
                                              recorder_.offset(scratch)),
                {{source, Split::rows}}, {{scratch, Split::rows}});
  return {scratch, kernel.activations};
}

ValueId PreparedInputs::scratch_of(size_t bytes) {
  for (const SharedScratch& shared : shared_) {
    if (shared.bytes == bytes) return shared.scratch;
  }
  const ValueId scratch = recorder_.add_scratch(bytes);
  shared_.push_back({bytes, scratch});
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
                              bool biases, const std::vector<RowOrder>& row_orders,
                              const LinearSlice& slice) {
  TW_CHECK(prefixes.size() == output_sizes.size() && loader.scheme != nullptr);
  TW_CHECK(row_orders.empty() || row_orders.size() == prefixes.size());
  TW_CHECK(slice.rows.empty() || slice.rows.size() == prefixes.size());
  const Checkpoint& checkpoint = loader.checkpoint;
  std::vector<std::unique_ptr<StoredMatrix>> owned;
  std::vector<const StoredMatrix*> matrices;
  for (size_t i = 0; i < prefixes.size(); ++i) {
    auto matrix = loader.scheme->open(checkpoint, prefixes[i], output_sizes[i], input_size);
    if (!matrix) return forward_error(matrix);
    if (!row_orders.empty()) {
      *matrix = std::make_unique<ReorderedMatrix>(std::move(*matrix), row_orders[i]);
    }
    if (!slice.rows.empty()) {
      *matrix = std::make_unique<SlicedRows>(std::move(*matrix), slice.rows[i]);
    }
    if (slice.columns) {
      *matrix = std::make_unique<SlicedColumns>(std::move(*matrix), *slice.columns);
    }
    matrices.push_back(matrix->get());
    owned.push_back(std::move(*matrix));
  }

  Linear linear;
  linear.input_size_ = slice.columns ? slice.columns->size() : input_size;
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
    part.prefill_kernel = &loader.select_prefill_gemm(format);
    if (!loader.checks_only) {
      auto weight = pack({matrices.data() + begin, end - begin}, loader.team);
      if (!weight) {
        return error(weight.error().code, "{}: {}", checkpoint.path().string(),
                     weight.error().message);
      }
      part.weight = std::move(*weight);
    }
    for (size_t i = begin; i < end; ++i) {
      if (biases) {
        auto bias = loader.load_vector(prefixes[i] + ".bias", output_sizes[i],
                                       row_orders.empty() ? RowOrder{} : row_orders[i]);
        if (!bias) return forward_error(bias);
        if (slice.rows.empty()) {
          part.bias.insert(part.bias.end(), bias->begin(), bias->end());
        } else {
          for (const Range& rows : slice.rows[i]) {
            part.bias.insert(part.bias.end(), bias->begin() + rows.begin, bias->begin() + rows.end);
          }
        }
      }
      if (loader.checks_only) continue;
      for (const StoredTensor* tensor : matrices[i]->tensors()) {
        if (loader.on_progress) loader.on_progress(static_cast<int64_t>(tensor->data.size()));
        checkpoint.release(*tensor);
      }
    }
    linear.output_size_ += part.weight.n();
    linear.parts_.push_back(std::move(part));
    begin = end;
  }
  if (loader.lora)
    linear.lora_ = lora_site(loader.lora, prefixes, input_size, output_sizes, row_orders, slice);
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
    GemmStep::Operands operands;
    operands.passes[0].kernel = part.kernel;
    if (part.prefill_kernel != part.kernel) {
      operands.num_passes = 2;
      operands.passes[0].part = RowPart::generated;
      operands.passes[1] = {RowPart::prompt, part.prefill_kernel};
    }
    // Kernels of different names may read the same form: it is prepared once, for all rows.
    const bool one_form = part.kernel->activations == part.prefill_kernel->activations;
    ValueId sources[2];
    for (int i = 0; i < 2; ++i) {
      GemmStep::Pass& pass = operands.passes[std::min(i, operands.num_passes - 1)];
      const RowPart rows = one_form ? RowPart::all : pass.part;
      sources[i] = prepared.prepare(input, *pass.kernel, part.input_order, rows).scratch;
      pass.input = recorder.offset(sources[i]);
    }
    operands.weight = &part.weight;
    operands.bias = part.bias.empty() ? nullptr : part.bias.data();
    operands.rows = recorder.rows(output);
    operands.output = recorder.offset(output) + static_cast<size_t>(part.column) * sizeof(float);
    operands.output_columns = recorder.columns(output);
    operands.epilogue = epilogue;
    recorder.add(std::make_unique<GemmStep>(operands),
                 {{sources[0], Split::other}, {sources[1], Split::other}},
                 {{output, Split::other}});
  }
  if (!lora_.outputs.empty()) record_lora(lora_, recorder, prepared, input, output);
}

}  // namespace tw
