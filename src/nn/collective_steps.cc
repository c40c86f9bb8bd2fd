#include "nn/collective_steps.h"

#include "core/check.h"

namespace tw {
namespace {

// A value as a matrix of the batch's rows; without data where there is none.
struct Operand {
  std::optional<size_t> offset;
  int64_t columns = 0;
  RowKind rows = RowKind::tokens;

  Matrix<float> at(const StepContext& context) const {
    float* data = offset ? reinterpret_cast<float*>(context.arena + *offset) : nullptr;
    return dense_matrix(data, num_rows(rows, context.batch), columns);
  }
};

Operand operand_of(const PlanRecorder& recorder, std::optional<ValueId> value) {
  if (!value) return {};
  return {recorder.offset(*value), recorder.columns(*value), recorder.rows(*value)};
}

class AllReduceStep final : public Step {
 public:
  AllReduceStep(const Communicator& communicator, Operand summand, Operand output, bool accumulate)
      : communicator_(communicator), summand_(summand), output_(output), accumulate_(accumulate) {}

  std::string_view name() const override { return "all_reduce"; }
  bool begins_with_barrier() const override { return true; }

  void run(const StepContext& context) const override {
    communicator_.all_reduce(context.member, summand_.at(context), output_.at(context),
                             accumulate_);
  }

  StepCost cost(const Batch& batch) const override {
    const int64_t elements = num_rows(output_.rows, batch) * output_.columns;
    return {communicator_.size() * elements * static_cast<int64_t>(sizeof(float)),
            communicator_.size() * elements};
  }

 private:
  Communicator communicator_;
  Operand summand_, output_;
  bool accumulate_;
};

class AllGatherStep final : public Step {
 public:
  AllGatherStep(const Communicator& communicator, Operand columns, Operand output)
      : communicator_(communicator), columns_(columns), output_(output) {}

  std::string_view name() const override { return "all_gather"; }
  bool begins_with_barrier() const override { return true; }

  void run(const StepContext& context) const override {
    communicator_.all_gather(context.member, columns_.at(context), output_.at(context));
  }

 private:
  Communicator communicator_;
  Operand columns_, output_;
};

}  // namespace

void record_all_reduce(PlanRecorder& recorder, const Communicator& communicator,
                       std::optional<ValueId> summand, ValueId output, kernels::Epilogue epilogue) {
  TW_CHECK(!summand || recorder.columns(*summand) == recorder.columns(output));
  auto step = std::make_unique<AllReduceStep>(communicator, operand_of(recorder, summand),
                                              operand_of(recorder, output),
                                              epilogue == kernels::Epilogue::accumulate);
  // A large sum is formed in the summand, so that is written as well.
  if (summand) {
    recorder.add(std::move(step), {}, {{*summand, Split::other}, {output, Split::other}});
  } else {
    recorder.add(std::move(step), {}, {{output, Split::other}});
  }
}

void record_all_gather(PlanRecorder& recorder, const Communicator& communicator, ValueId columns,
                       int64_t all_columns, std::optional<ValueId> output) {
  TW_CHECK(!output || recorder.columns(*output) == all_columns);
  Operand gathered = operand_of(recorder, columns);
  gathered.columns = all_columns;
  gathered.offset = output ? std::optional(recorder.offset(*output)) : std::nullopt;
  auto step =
      std::make_unique<AllGatherStep>(communicator, operand_of(recorder, columns), gathered);
  if (output) {
    recorder.add(std::move(step), {{columns, Split::other}}, {{*output, Split::other}});
  } else {
    recorder.add(std::move(step), {{columns, Split::other}}, {});
  }
}

}  // namespace tw
