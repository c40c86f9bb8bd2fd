#include "nn/attention.h"

#include <cmath>

#include "core/check.h"
#include "nn/attention_work_list.h"

namespace tw {

using kernels::AttentionArguments;

namespace {

// Fills a work list for the batch; member 0 does it alone.
template <typename WorkList>
class DivideStep final : public Step {
 public:
  explicit DivideStep(std::shared_ptr<WorkList> list) : list_(std::move(list)) {}

  std::string_view name() const override { return "divide_attention"; }

  void run(const StepContext& context) const override {
    if (context.member.rank() != 0) return;
    kernels::build_attention_plan(list_->work, attention_batch(context.batch), list_->plan);
  }

 private:
  std::shared_ptr<WorkList> list_;
};

class QkNormStep final : public Step {
 public:
  QkNormStep(const kernels::NormKernels& kernels, const kernels::AttentionShape& shape,
             const QkNorm& norm, size_t qkv)
      : kernels_(kernels),
        norm_(norm),
        qkv_(qkv),
        q_columns_(int64_t{shape.num_heads} * shape.layout.head_dim),
        kv_columns_(int64_t{shape.layout.num_kv_heads} * shape.layout.head_dim) {}

  std::string_view name() const override { return "qk_norm"; }

  void run(const StepContext& context) const override {
    const Range tokens = context.member.share(context.batch.num_tokens());
    auto* qkv = reinterpret_cast<float*>(context.arena + qkv_);
    for (int64_t token = tokens.begin; token < tokens.end; ++token) {
      float* q = qkv + token * (q_columns_ + 2 * kv_columns_);
      normalize(q, q_columns_, norm_.q_weight);
      normalize(q + q_columns_, kv_columns_, norm_.k_weight);
    }
  }

 private:
  // As many rows as the weight goes into the columns: heads, or all in one.
  void normalize(float* values, int64_t columns, std::span<const float> weight) const {
    const auto width = static_cast<int64_t>(weight.size());
    const int64_t rows = columns / width;
    kernels::RmsNormArguments arguments;
    arguments.x = dense_matrix(static_cast<const float*>(values), rows, width);
    arguments.out = dense_matrix(values, rows, width);
    arguments.weight = weight.data();
    arguments.epsilon = norm_.epsilon;
    kernels_.rms_norm(arguments, {0, rows});
  }

  const kernels::NormKernels& kernels_;
  const QkNorm& norm_;
  size_t qkv_;
  int64_t q_columns_;
  int64_t kv_columns_;
};

class TemperatureStep final : public Step {
 public:
  TemperatureStep(const QueryTemperature& temperature, size_t qkv, int64_t stride,
                  int64_t q_columns)
      : temperature_(temperature), qkv_(qkv), stride_(stride), q_columns_(q_columns) {}

  std::string_view name() const override { return "query_temperature"; }

  void run(const StepContext& context) const override {
    const Range tokens = context.member.share(context.batch.num_tokens());
    auto* qkv = reinterpret_cast<float*>(context.arena + qkv_);
    for (int64_t token = tokens.begin; token < tokens.end; ++token) {
      const auto position = static_cast<float>(context.batch.positions[static_cast<size_t>(token)]);
      const float steps = std::floor((position + 1.0f) / temperature_.floor);
      if (steps == 0.0f) continue;
      const float factor = 1.0f + temperature_.scale * std::log1p(steps);
      float* q = qkv + token * stride_;
      for (int64_t i = 0; i < q_columns_; ++i) q[i] *= factor;
    }
  }

 private:
  QueryTemperature temperature_;
  size_t qkv_;
  int64_t stride_;
  int64_t q_columns_;
};

class RopeStoreStep final : public Step {
 public:
  RopeStoreStep(const kernels::RopeKernels& kernels, const kernels::RopeStoreArguments& arguments,
                std::shared_ptr<const kernels::RopeTable> table, size_t qkv)
      : kernels_(kernels), arguments_(arguments), table_(std::move(table)), qkv_(qkv) {
    if (table_ != nullptr) arguments_.rope = table_->view();
  }

  std::string_view name() const override { return "rope_and_store_kv"; }

  void run(const StepContext& context) const override {
    kernels::RopeStoreArguments arguments = arguments_;
    const int64_t rows = context.batch.num_tokens();
    const int64_t head_dim = arguments.layout.head_dim;
    const int64_t q_columns = arguments.num_heads * head_dim;
    const int64_t kv_columns = arguments.layout.num_kv_heads * head_dim;
    const int64_t stride = q_columns + 2 * kv_columns;
    auto* qkv = reinterpret_cast<float*>(context.arena + qkv_);
    const Range tokens = context.member.share(rows);
    arguments.q = {qkv, rows, q_columns, stride};
    arguments.k = {qkv + q_columns, rows, kv_columns, stride};
    arguments.v = {qkv + q_columns + kv_columns, rows, kv_columns, stride};
    arguments.positions = context.batch.positions.data();
    arguments.kv_slots = context.batch.kv_slots.data();
    kernels_.rope_and_store_kv(arguments, tokens);
    arguments.num_heads = 0;  // the queries are rotated
    for (const KvCopy& copy : context.batch.kv_copies) {
      if (copy.token < tokens.begin || copy.token >= tokens.end) continue;
      arguments.k.data = qkv + copy.token * stride + q_columns;
      arguments.v.data = arguments.k.data + kv_columns;
      arguments.positions = &context.batch.positions[static_cast<size_t>(copy.token)];
      arguments.kv_slots = &copy.slot;
      kernels_.rope_and_store_kv(arguments, {0, 1});
    }
  }

 private:
  const kernels::RopeKernels& kernels_;
  kernels::RopeStoreArguments arguments_;
  std::shared_ptr<const kernels::RopeTable> table_;
  size_t qkv_;
};

// The two halves of attention: items of the work list, then, after a barrier, the merging of
// contexts that were split over threads.
template <typename WorkList>
class AttentionStep : public Step {
 public:
  AttentionStep(const kernels::AttentionKernels& kernels, std::shared_ptr<WorkList> list,
                const AttentionArguments& arguments, size_t qkv, size_t output, size_t partials)
      : kernels_(kernels),
        list_(std::move(list)),
        arguments_(arguments),
        qkv_(qkv),
        output_(output),
        partials_(partials) {}

 protected:
  AttentionArguments bind(const StepContext& context) const {
    AttentionArguments arguments = arguments_;
    const kernels::KvLayout& layout = arguments.shape.layout;
    const int64_t rows = context.batch.num_tokens();
    const int64_t columns = int64_t{arguments.shape.num_heads} * layout.head_dim;
    const int64_t stride = columns + 2 * int64_t{layout.num_kv_heads} * layout.head_dim;
    arguments.batch = attention_batch(context.batch);
    arguments.plan = &list_->plan;
    arguments.q = {reinterpret_cast<const float*>(context.arena + qkv_), rows, columns, stride};
    arguments.out = dense_matrix(reinterpret_cast<float*>(context.arena + output_), rows, columns);
    arguments.partials = reinterpret_cast<float*>(context.arena + partials_);
    return arguments;
  }

  const kernels::AttentionShape& shape() const { return arguments_.shape; }

  const kernels::AttentionKernels& kernels_;
  std::shared_ptr<WorkList> list_;

 private:
  AttentionArguments arguments_;
  size_t qkv_;
  size_t output_;
  size_t partials_;
};

template <typename WorkList>
class AttendStep final : public AttentionStep<WorkList> {
 public:
  using AttentionStep<WorkList>::AttentionStep;
  std::string_view name() const override { return "attention"; }

  void run(const StepContext& context) const override {
    this->kernels_.attend(this->bind(context), this->list_->plan.items_of(context.member.rank()));
  }

  StepCost cost(const Batch& batch) const override {
    const kernels::AttentionShape& shape = this->shape();
    const AttentionCounts counts = count_attention(batch);
    return {counts.cached * shape.layout.bytes_per_token(),
            4 * counts.scores * shape.num_heads * shape.layout.head_dim};
  }
};

template <typename WorkList>
class MergeStep final : public AttentionStep<WorkList> {
 public:
  using AttentionStep<WorkList>::AttentionStep;
  std::string_view name() const override { return "merge_attention"; }

  void run(const StepContext& context) const override {
    if (this->list_->plan.num_merges == 0) return;
    this->kernels_.merge(this->bind(context), context.member.share(context.batch.num_tokens()));
  }
};

}  // namespace

AttentionRecorder::AttentionRecorder(PlanRecorder& recorder, const CpuFeatures& features,
                                     const kernels::AttentionLimits& limits)
    : recorder_(recorder),
      features_(features),
      norm_kernels_(kernels::select_norm(features)),
      rope_kernels_(kernels::select_rope(features)),
      limits_(limits),
      pages_(recorder.add_external()) {}

std::shared_ptr<AttentionRecorder::WorkList> AttentionRecorder::work_list(
    const kernels::AttentionWork& work) {
  for (const auto& list : work_lists_) {
    if (list->work == work) return list;
  }
  auto list = std::make_shared<WorkList>();
  list->work = work;
  list->memory = std::make_unique<std::byte[]>(kernels::attention_plan_size(work, limits_));
  list->plan = kernels::layout_attention_plan(work, limits_, list->memory.get());
  list->value = recorder_.add_external();
  list->partials = recorder_.add_scratch(kernels::attention_partials_size(work, limits_));
  recorder_.add(std::make_unique<DivideStep<WorkList>>(list), {}, {{list->value, Split::other}});
  work_lists_.push_back(list);
  return list;
}

void AttentionRecorder::record(const AttentionLayer& layer, ValueId qkv, ValueId output) {
  const kernels::AttentionShape& shape = layer.shape;
  const kernels::KvLayout& layout = shape.layout;
  const int64_t heads = shape.num_heads + 2 * int64_t{layout.num_kv_heads};
  TW_CHECK(recorder_.columns(qkv) == heads * layout.head_dim);
  TW_CHECK(recorder_.columns(output) == int64_t{shape.num_heads} * layout.head_dim);
  const auto list = work_list(shape.work());
  const size_t q = recorder_.offset(qkv), out = recorder_.offset(output);
  const size_t partials = recorder_.offset(list->partials);

  if (layer.qk_norm) {
    recorder_.add(std::make_unique<QkNormStep>(norm_kernels_, shape, layer.qk_norm, q), {},
                  {{qkv, Split::rows}});
  }
  if (layer.temperature) {
    recorder_.add(std::make_unique<TemperatureStep>(*layer.temperature, q, recorder_.columns(qkv),
                                                    recorder_.columns(output)),
                  {}, {{qkv, Split::rows}});
  }
  kernels::RopeStoreArguments rope;
  rope.layout = layout;
  rope.num_heads = shape.num_heads;
  rope.keys = layer.cache.keys();
  rope.values = layer.cache.values();
  rope.key_scale = layer.key_scale;
  rope.value_scale = layer.value_scale;
  recorder_.add(std::make_unique<RopeStoreStep>(rope_kernels_, rope, layer.rope, q), {},
                {{qkv, Split::rows}, {pages_, Split::rows}});

  AttentionArguments arguments;
  arguments.shape = shape;
  arguments.keys = layer.cache.keys();
  arguments.values = layer.cache.values();
  arguments.key_scale = layer.key_scale;
  arguments.value_scale = layer.value_scale;
  arguments.sinks = layer.sinks;
  const kernels::AttentionKernels& attention = kernels::select_attention(features_, layout.type);
  recorder_.add(
      std::make_unique<AttendStep<WorkList>>(attention, list, arguments, q, out, partials),
      {{list->value, Split::other}, {qkv, Split::other}, {pages_, Split::other}},
      {{output, Split::other}, {list->partials, Split::other}});
  recorder_.add(std::make_unique<MergeStep<WorkList>>(attention, list, arguments, q, out, partials),
                {{list->partials, Split::other}}, {{output, Split::rows}});
}

}  // namespace tw
