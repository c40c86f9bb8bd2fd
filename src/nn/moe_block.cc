#include "nn/moe_block.h"

#include "core/check.h"
#include "kernels/moe/dispatch.h"
#include "kernels/moe/moe_kernels.h"
#include "kernels/moe/routing.h"
#include "nn/expert_layer.h"
#include "nn/experts.h"
#include "nn/forward_recorder.h"
#include "nn/gated_ffn.h"
#include "nn/linear.h"
#include "nn/load_sequence.h"

namespace tw {
namespace {

using kernels::ActivationFormat;
using kernels::ExpertDispatch;
using kernels::PreparedActivations;
using kernels::Routing;

// How often each expert was chosen: a line of counters per thread, on cache lines of its own.
class ChoiceCounts {
 public:
  ChoiceCounts() = default;
  ChoiceCounts(int num_threads, int32_t num_experts)
      : stride_((static_cast<size_t>(num_experts) + 7) / 8 * 8),
        counts_(static_cast<size_t>(num_threads) * stride_) {}

  void add(int thread, std::span<const int32_t> experts) {
    int64_t* counts = counts_.data() + static_cast<size_t>(thread) * stride_;
    for (const int32_t expert : experts) ++counts[expert];
  }
  std::vector<int64_t> sums(int32_t num_experts) const {
    std::vector<int64_t> sums(static_cast<size_t>(num_experts));
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (i % stride_ < sums.size()) sums[i % stride_] += counts_[i];
    }
    return sums;
  }

 private:
  size_t stride_ = 0;
  std::vector<int64_t> counts_;
};

// Nothing where there is one group.
ExpertDispatch make_dispatch(const ExpertPlacement& placement, int group) {
  if (placement.num_groups() == 1) return {};
  return kernels::make_dispatch(placement.num_experts, placement.slots, group);
}

// Rows of one class and the prepared activations that its kernels read.
struct ClassOperands {
  RowPart part = RowPart::all;
  ActivationFormat input_format = ActivationFormat::f32;
  size_t input = 0;  // [tokens, hidden_size]
  ActivationFormat shared_input_format = ActivationFormat::f32;
  size_t shared_input = 0;  // [tokens, hidden_size]

  bool prompts() const { return part == RowPart::prompt; }
};

// Where everything lies that the block's steps work on; offsets are of the arena.
struct MoeOperands {
  const kernels::MoeKernels* kernels = nullptr;
  const kernels::ActivationKernels* activations = nullptr;
  kernels::RouterConfig router;
  const float* correction_bias = nullptr;
  bool weights_inputs = false;
  const ExpertDispatch* dispatch = nullptr;
  ChoiceCounts* choices = nullptr;
  int num_groups = 1;
  kernels::RoutingLimits limits;
  size_t routing = 0;
  size_t router_logits = 0;  // [tokens, router_columns]
  int64_t router_columns = 0;
  std::vector<ClassOperands> classes;  // one of all rows, or generated ones, then prompts
  size_t gathered = 0;                 // [tokens * top_k, hidden_size], a class behind the other
  int64_t hidden_size = 0;
  Experts::Operands routed;
  Experts::Operands shared;  // without weights: none
  bool has_shared_gate = false;
  int64_t bytes_per_expert = 0, shared_bytes = 0;
  int64_t operations_per_row = 0, shared_operations_per_row = 0;
  size_t output = 0;
  kernels::Epilogue epilogue = kernels::Epilogue::store;

  bool has_shared() const { return !shared.weights.empty(); }
  Routing routing_at(const StepContext& context) const {
    Routing at = kernels::layout_routing(limits, context.arena + routing);
    if (classes.size() > 1) at.first_prompt = context.batch.num_generated_tokens;
    return at;
  }
  Matrix<const float> logits_at(std::byte* arena, int64_t tokens) const {
    return {reinterpret_cast<const float*>(arena + router_logits), tokens, router_columns,
            router_columns};
  }
  PreparedActivations gathered_at(std::byte* arena, const ClassOperands& of, Range rows) const {
    return layout_class(classes.front().input_format, of.input_format, rows, hidden_size,
                        arena + gathered);
  }
  Range choices_of(Range tokens) const {
    return {tokens.begin * router.top_k, tokens.end * router.top_k};
  }
};

class MoeStep : public Step {
 public:
  explicit MoeStep(const MoeOperands& operands) : o(operands) {}

 protected:
  const MoeOperands& o;
};

class RouteStep final : public MoeStep {
 public:
  using MoeStep::MoeStep;
  std::string_view name() const override { return "route"; }

  void run(const StepContext& context) const override {
    const int64_t tokens = context.batch.num_tokens();
    const Range share = context.member.share(tokens);
    const Routing routing = o.routing_at(context);
    kernels::RouterArguments arguments;
    arguments.config = o.router;
    arguments.logits = o.logits_at(context.arena, tokens);
    arguments.correction_bias = o.correction_bias;
    arguments.experts = routing.experts;
    arguments.weights = routing.weights;
    o.kernels->route(arguments, share);
    const int64_t top_k = o.router.top_k;
    o.choices->add(context.member.rank(), {routing.experts + share.begin * top_k,
                                           static_cast<size_t>(share.size() * top_k)});
    if (!o.dispatch->empty()) kernels::keep_own_choices(*o.dispatch, routing, share);
    kernels::count_choices(routing, context.member.rank(), share);
  }
};

class GatherRowsStep final : public MoeStep {
 public:
  using MoeStep::MoeStep;
  std::string_view name() const override { return "gather_expert_rows"; }

  void run(const StepContext& context) const override {
    const int64_t tokens = context.batch.num_tokens();
    const Range share = context.member.share(tokens);
    const Routing routing = o.routing_at(context);
    kernels::place_choices(routing, context.member.rank(), context.member.size(), share);
    for (const ClassOperands& of : o.classes) {
      const Range all = row_range(of.part, RowKind::tokens, context.batch);
      const Range rows = o.choices_of(all);
      const Range mine{std::max(share.begin, all.begin), std::min(share.end, all.end)};
      kernels::gather_rows(routing,
                           kernels::layout_prepared_activations(
                               of.input_format, tokens, o.hidden_size, context.arena + of.input),
                           mine, o.gathered_at(context.arena, of, rows), rows.begin);
    }
  }
};

// One of the three steps that compute the experts.
class ExpertStep final : public MoeStep {
 public:
  enum class Part : uint8_t { gate_and_up, prepare, down };

  ExpertStep(const MoeOperands& operands, Part part) : MoeStep(operands), part_(part) {}

  std::string_view name() const override {
    switch (part_) {
      case Part::gate_and_up:
        return "experts_gate_up";
      case Part::prepare:
        return "experts_prepare";
      case Part::down:
        return "experts_down";
    }
    return "?";
  }

  void run(const StepContext& context) const override {
    const int64_t tokens = context.batch.num_tokens();
    const Routing routing = o.routing_at(context);
    const auto split = static_cast<int32_t>(std::min(routing.first_prompt, tokens));
    const int32_t shared_starts[] = {0, split, static_cast<int32_t>(tokens)};
    kernels::ExpertSet sets[4];
    size_t num_sets = 0;
    for (const ClassOperands& of : o.classes) {
      const Range all = row_range(of.part, RowKind::tokens, context.batch);
      if (all.empty()) continue;
      const Range rows = o.choices_of(all);
      kernels::ExpertSet& routed = sets[num_sets++];
      routed = o.routed.at(context.arena, of.prompts(), rows,
                           of.prompts() ? routing.prompt_starts() : routing.starts,
                           o.gathered_at(context.arena, of, rows));
      if (o.weights_inputs) routed.input_scales = routing.row_weights + rows.begin;
      if (!o.has_shared()) continue;
      sets[num_sets++] = o.shared.at(
          context.arena, of.prompts(), all, shared_starts + (of.prompts() ? 1 : 0),
          slice_rows(
              kernels::layout_prepared_activations(of.shared_input_format, tokens, o.hidden_size,
                                                   context.arena + of.shared_input),
              all));
    }
    const std::span<const kernels::ExpertSet> used(sets, num_sets);
    const int rank = context.member.rank(), size = context.member.size();
    switch (part_) {
      case Part::gate_and_up:
        return kernels::gate_and_up(used, *o.activations, rank, size);
      case Part::prepare:
        return kernels::prepare_activated(used, rank, size);
      case Part::down:
        return kernels::down(used, rank, size);
    }
  }

  // Gate and up are two thirds. At the least as many experts are read as one token chooses, at most
  // as many as there are.
  StepCost cost(const Batch& batch) const override {
    if (part_ == Part::prepare) return {};
    const int64_t thirds = part_ == Part::gate_and_up ? 2 : 1;
    const int64_t rows = int64_t{batch.num_tokens()} * o.router.top_k / o.num_groups;
    const int64_t touched = std::min<int64_t>(rows, o.limits.num_experts);
    return {
        thirds * (touched * o.bytes_per_expert + o.shared_bytes) / 3,
        thirds * (rows * o.operations_per_row + batch.num_tokens() * o.shared_operations_per_row)};
  }

 private:
  Part part_;
};

class CombineStep final : public MoeStep {
 public:
  using MoeStep::MoeStep;
  std::string_view name() const override { return "combine_experts"; }

  void run(const StepContext& context) const override {
    const int64_t tokens = context.batch.num_tokens();
    const Routing routing = o.routing_at(context);
    const auto rows_at = [&](size_t offset, int64_t rows) {
      return dense_matrix(reinterpret_cast<const float*>(context.arena + offset), rows,
                          o.hidden_size);
    };
    kernels::CombineArguments arguments;
    arguments.top_k = o.router.top_k;
    arguments.rows = routing.rows;
    if (!o.weights_inputs) arguments.weights = routing.weights;
    arguments.expert_output = rows_at(o.routed.output, tokens * o.router.top_k);
    if (o.has_shared()) arguments.shared = rows_at(o.shared.output, tokens);
    if (o.has_shared_gate) {
      const Matrix<const float> logits = o.logits_at(context.arena, tokens);
      arguments.shared_gate = {logits.data + o.router.num_experts, tokens, 1, logits.row_stride};
    }
    arguments.out =
        dense_matrix(reinterpret_cast<float*>(context.arena + o.output), tokens, o.hidden_size);
    arguments.accumulate = o.epilogue == kernels::Epilogue::accumulate;
    o.kernels->combine(arguments, context.member.share(tokens));
  }
};

class MoeBlock final : public Block, public ExpertLayer {
 public:
  static Expected<std::unique_ptr<Block>> load(const WeightLoader& loader,
                                               const std::string& prefix, const MoeConfig& config) {
    const std::string source = loader.checkpoint.path().string();
    if (Status valid = config.router.validate(); !valid) {
      return error(valid.error().code, "{}: {}: {}", source, prefix, valid.error().message);
    }
    auto activation = activation_of(config.hidden_act, source);
    if (!activation) return forward_error(activation);
    if (loader.experts.num_groups > config.router.num_experts) {
      return error(ErrorCode::unsupported, "{}: {} has {} experts, too few for --ep {}", source,
                   prefix, config.router.num_experts, loader.experts.num_groups);
    }
    auto expected = expected_choices(loader, prefix, config.router.num_experts);
    if (!expected) return forward_error(expected);
    auto block = std::unique_ptr<MoeBlock>(new MoeBlock(config, loader, prefix, *expected));
    if (Status status = block->load_router(loader, prefix + "."); !status) {
      return forward_error(status);
    }
    auto matrices = open_experts(loader.checkpoint, *loader.scheme,
                                 prefix + "." + config.experts_name, config.experts);
    if (!matrices) return forward_error(matrices);
    WeightLoader in_group = loader;
    in_group.shard = loader.expert_shard();
    auto routed = Experts::load(in_group, std::move(*matrices),
                                {*activation, config.clamped_swiglu}, block->own_slots());
    if (!routed) return forward_error(routed);
    block->routed_ = std::move(*routed);
    if (config.shared_intermediate_size > 0) {
      auto shared = load_shared(loader, prefix + "." + config.shared_name, config, *activation);
      if (!shared) return forward_error(shared);
      block->shared_ = std::move(*shared);
    }
    return block;
  }

  BlockShare share() const override { return BlockShare::part; }
  ExpertLayer* expert_layer() override { return this; }

  const std::string& name() const override { return name_; }
  std::vector<int64_t> choices() const override {
    return choices_.sums(config_.router.num_experts);
  }
  const ExpertSlots& slots() const override { return slots_; }
  const ExpertPlacement& placement() const override { return placement_; }

  Status stage(const ExpertPlacement& placement, std::span<ExpertLayer* const> peers) override {
    std::vector<const kernels::ExpertWeights*> sources;
    for (const int32_t expert : placement.slots[static_cast<size_t>(group_)]) {
      // One that lies here already is copied from here.
      const ExpertDispatch::Holder holder = holder_of(expert);
      const auto& peer = static_cast<const MoeBlock&>(*peers[static_cast<size_t>(holder.group)]);
      sources.push_back(&peer.routed_.weights(static_cast<size_t>(holder.slot)));
    }
    if (Status status = routed_.stage(sources, team_); !status) return status;
    staged_placement_ = placement;
    return {};
  }

  void commit() override {
    routed_.commit();
    placement_ = std::move(staged_placement_);
    dispatch_ = make_dispatch(placement_, group_);
  }

  void discard() override { routed_.discard(); }

  Status record(ForwardRecorder& recorder, ValueId input, ValueId output,
                kernels::Epilogue epilogue) override {
    PlanRecorder& plan = recorder.plan();
    const int32_t top_k = config_.router.top_k;
    const int64_t hidden_size = config_.experts.hidden_size;
    const bool has_shared = !shared_.empty();
    const ValueId logits = recorder.shared_value("router_logits", router_.output_size());
    router_.record(plan, recorder.prepared(), input, logits);
    MoeOperands& o = operands_;
    std::vector<ValueId> inputs, shared_inputs;  // of each class
    for (const RowPart part : row_classes()) {
      const auto prepared = prepare_input(recorder, input, routed_, part);
      const auto shared_prepared =
          has_shared ? prepare_input(recorder, input, shared_, part) : prepared;
      inputs.push_back(prepared.scratch);
      shared_inputs.push_back(shared_prepared.scratch);
      o.classes.push_back({part, prepared.format, plan.offset(prepared.scratch),
                           shared_prepared.format, plan.offset(shared_prepared.scratch)});
    }
    o.limits = {recorder.limits().max_num_tokens, static_cast<int32_t>(routed_.num_experts()),
                top_k, recorder.limits().num_threads};
    const ValueId routing = recorder.shared_scratch("routing", kernels::routing_size(o.limits));
    const ValueId gathered = recorder.shared_scratch(
        "gathered", two_classes_size(o.classes.front().input_format, o.classes.back().input_format,
                                     o.limits.max_num_tokens * top_k, hidden_size));
    const Experts::Values routed = routed_.add_values(recorder, "routed", top_k);
    const Experts::Values shared = has_shared ? shared_.add_values(recorder, "shared", 1) : routed;

    o.kernels = &kernels::select_moe(recorder.features());
    o.activations = &recorder.kernels().activation;
    o.router = config_.router;
    o.correction_bias = correction_bias_.empty() ? nullptr : correction_bias_.data();
    o.weights_inputs = config_.weights_inputs;
    choices_ = ChoiceCounts(recorder.limits().num_threads, config_.router.num_experts);
    o.choices = &choices_;
    o.dispatch = &dispatch_;
    o.num_groups = slots_.num_groups;
    o.routing = plan.offset(routing);
    o.router_logits = plan.offset(logits);
    o.router_columns = router_.output_size();
    o.gathered = plan.offset(gathered);
    o.hidden_size = hidden_size;
    o.routed = routed_.operands(plan, routed);
    o.bytes_per_expert = routed_.bytes_per_expert();
    o.operations_per_row = 2 * hidden_size * routed_.intermediate_size();
    if (has_shared) {
      o.shared = shared_.operands(plan, shared);
      o.has_shared_gate = !config_.shared_gate_name.empty();
      o.shared_bytes = shared_.bytes_per_expert();
      o.shared_operations_per_row = 2 * hidden_size * shared_.intermediate_size();
    }
    o.output = plan.offset(output);
    o.epilogue = epilogue;

    plan.add(std::make_unique<RouteStep>(o), {{logits, Split::rows}}, {{routing, Split::rows}});
    plan.add(std::make_unique<GatherRowsStep>(o),
             {{inputs.front(), Split::rows}, {inputs.back(), Split::rows}, {routing, Split::other}},
             {{routing, Split::other}, {gathered, Split::other}});
    using Part = ExpertStep::Part;
    plan.add(std::make_unique<ExpertStep>(o, Part::gate_and_up),
             {{routing, Split::other},
              {gathered, Split::other},
              {shared_inputs.front(), Split::other},
              {shared_inputs.back(), Split::other}},
             {{routed.activated, Split::other},
              {routed.up, Split::other},
              {shared.activated, Split::other},
              {shared.up, Split::other}});
    plan.add(std::make_unique<ExpertStep>(o, Part::prepare),
             {{routed.activated, Split::other}, {shared.activated, Split::other}},
             {{routed.prepared, Split::other}, {shared.prepared, Split::other}});
    plan.add(
        std::make_unique<ExpertStep>(o, Part::down),
        {{routing, Split::other}, {routed.prepared, Split::other}, {shared.prepared, Split::other}},
        {{routed.output, Split::other}, {shared.output, Split::other}});
    plan.add(std::make_unique<CombineStep>(o),
             {{routing, Split::other},
              {logits, Split::rows},
              {routed.output, Split::other},
              {shared.output, Split::other}},
             {{output, Split::rows}});
    return {};
  }

 private:
  // What is known of the layer's experts; nothing where they can't be placed by it.
  static Expected<std::span<const int64_t>> expected_choices(const WeightLoader& loader,
                                                             const std::string& name,
                                                             int32_t num_experts) {
    const ExpertChoices* choices = loader.experts.expected;
    if (choices == nullptr || loader.experts.num_groups == 1) return std::span<const int64_t>();
    const auto found = choices->find(name);
    if (found == choices->end()) return std::span<const int64_t>();
    if (std::ssize(found->second) != num_experts) {
      return error(ErrorCode::invalid_argument,
                   "--init-expert-location: {} has {} experts there and {} in {}", name,
                   found->second.size(), num_experts, loader.checkpoint.path().string());
    }
    return std::span<const int64_t>(found->second);
  }

  MoeBlock(const MoeConfig& config, const WeightLoader& loader, const std::string& name,
           std::span<const int64_t> expected)
      : config_(config),
        name_(name),
        team_(loader.team),
        group_(loader.expert_group()),
        slots_{config.router.num_experts, loader.experts.num_groups, loader.experts.num_redundant},
        placement_(place_experts(slots_, expected)),
        dispatch_(make_dispatch(placement_, group_)) {}

  // The classes of rows that are computed apart.
  std::vector<RowPart> row_classes() const {
    const bool apart =
        routed_.has_prefill_kernels() || (!shared_.empty() && shared_.has_prefill_kernels());
    if (!apart) return {RowPart::all};
    return {RowPart::generated, RowPart::prompt};
  }

  // One form that both classes read is prepared once, for all rows.
  static PreparedInputs::Prepared prepare_input(ForwardRecorder& recorder, ValueId input,
                                                const Experts& experts, RowPart part) {
    const kernels::GemmKernel& kernel = experts.input_kernel(part == RowPart::prompt);
    const bool one_form =
        experts.input_kernel(false).activations == experts.input_kernel(true).activations;
    return recorder.prepared().prepare(input, kernel, {}, one_form ? RowPart::all : part);
  }

  // Of this rank's group; empty where there is one, which has all experts in order.
  std::span<const int32_t> own_slots() const {
    if (slots_.num_groups == 1) return {};
    return placement_.slots[static_cast<size_t>(group_)];
  }

  // Who has an expert: this group if it does.
  ExpertDispatch::Holder holder_of(int32_t expert) const {
    const auto e = static_cast<size_t>(expert);
    const auto first = dispatch_.holders.begin() + dispatch_.starts[e];
    const auto last = dispatch_.holders.begin() + dispatch_.starts[e + 1];
    const auto own = std::find_if(first, last, [&](const auto& h) { return h.group == group_; });
    return own == last ? *first : *own;
  }

  // The router reads fp32 whatever the experts read: a rounded input could choose another expert.
  Status load_router(const WeightLoader& loader, const std::string& prefix) {
    WeightLoader exact = loader;
    exact.precision = kernels::ActivationPrecision::f32;
    LoadSequence load(exact, prefix);
    std::vector<std::string> names = {config_.router_name};
    std::vector<int64_t> sizes = {config_.router.num_experts};
    if (!config_.shared_gate_name.empty()) {
      names.push_back(config_.shared_gate_name);
      sizes.push_back(1);
    }
    load.linear(names, config_.experts.hidden_size, sizes, config_.router_bias, router_);
    if (!config_.correction_bias_name.empty()) {
      load.vector(config_.correction_bias_name, config_.router.num_experts, correction_bias_);
    }
    return load.status();
  }

  static Expected<Experts> load_shared(const WeightLoader& loader, const std::string& prefix,
                                       const MoeConfig& config, kernels::Activation activation) {
    const int64_t size = config.shared_intermediate_size, hidden = config.experts.hidden_size;
    ExpertMatrices matrices;
    Status status;
    const auto open = [&](const char* name, int64_t rows, int64_t columns,
                          std::vector<std::unique_ptr<StoredMatrix>>& out) {
      if (!status) return;
      auto matrix = loader.scheme->open(loader.checkpoint, prefix + name, rows, columns);
      if (matrix) {
        out.push_back(std::move(*matrix));
      } else {
        status = tl::unexpected(std::move(matrix.error()));
      }
    };
    open(".gate_proj", size, hidden, matrices.gate);
    open(".up_proj", size, hidden, matrices.up);
    open(".down_proj", hidden, size, matrices.down);
    if (!status) return forward_error(status);
    return Experts::load(loader, std::move(matrices), {activation, config.clamped_swiglu});
  }

  MoeConfig config_;
  std::string name_;
  ThreadTeam& team_;
  int group_;
  ExpertSlots slots_;
  ExpertPlacement placement_, staged_placement_;
  ExpertDispatch dispatch_;
  ChoiceCounts choices_;
  Linear router_;                       // hidden -> experts, and the shared expert's gate
  std::vector<float> correction_bias_;  // [num_experts] or empty
  Experts routed_;
  Experts shared_;        // one or none
  MoeOperands operands_;  // of the recorded steps
};

// The first of several names that the configuration has, or the last.
const char* first_present(const ConfigFields& fields, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (fields.has(name)) return name;
  }
  return *(names.end() - 1);
}

}  // namespace

Expected<MoeConfig> MoeConfig::from(const ModelConfig& config) {
  ConfigFields fields = config.fields();
  MoeConfig moe;
  const char* num_experts =
      first_present(fields, {"n_routed_experts", "num_local_experts", "num_experts"});
  moe.router.num_experts =
      static_cast<int32_t>(fields.integer(num_experts, 1, kernels::kMaxExperts));
  moe.router.top_k =
      static_cast<int32_t>(fields.integer("num_experts_per_tok", 1, moe.router.num_experts));
  moe.experts.num_experts = moe.router.num_experts;
  moe.experts.hidden_size = config.hidden_size;
  moe.experts.intermediate_size = fields.integer(
      first_present(fields, {"moe_intermediate_size", "intermediate_size"}), 1, 1 << 24);
  moe.hidden_act = config.hidden_act;
  if (!fields.status()) return tl::unexpected(fields.status().error());
  return moe;
}

Expected<std::unique_ptr<Block>> load_moe(const WeightLoader& loader, const std::string& prefix,
                                          const MoeConfig& config) {
  return MoeBlock::load(loader, prefix, config);
}

}  // namespace tw
