#include "nn/plan.h"

#include <algorithm>
#include <chrono>

namespace tw {
namespace {

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

void Plan::run(const Batch& batch, ThreadTeam& team, StepTrace* trace, int first_member) const {
  if (trace != nullptr) return run_traced(batch, team, *trace, first_member);
  team.run([&](const TeamMember& member) {
    const StepContext context{batch, member, arena_.data()};
    for (const Entry& entry : entries_) {
      if (entry.barrier_before) member.barrier();
      entry.step->run(context);
    }
  });
}

void Plan::run_traced(const Batch& batch, ThreadTeam& team, StepTrace& trace,
                      int first_member) const {
  team.run([&](const TeamMember& member) {
    const StepContext context{batch, member, arena_.data()};
    int64_t now = now_ns();
    for (const Entry& entry : entries_) {
      StepEvent event{.name = entry.step->name(), .arrival_ns = now, .begin_ns = now};
      if (entry.barrier_before) {
        member.barrier();
        event.begin_ns = now_ns();
      }
      entry.step->run(context);
      event.end_ns = now = now_ns();
      if (member.rank() == 0) event.cost = entry.step->cost(batch);
      trace.record(first_member + member.rank(), event);
    }
  });
}

StepCost Plan::cost(const Batch& batch) const {
  StepCost sum;
  for (const Entry& entry : entries_) sum += entry.step->cost(batch);
  return sum;
}

Matrix<float> Plan::view(ValueId value, int64_t rows) const {
  const Value& info = values_[static_cast<size_t>(value.index)];
  return dense_matrix(reinterpret_cast<float*>(arena_.data() + info.offset), rows, info.columns);
}

int64_t Plan::num_barriers() const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [](const Entry& entry) { return entry.barrier_before; });
}

ValueId PlanRecorder::add_value(RowKind rows, int64_t columns) {
  const auto bytes = static_cast<size_t>(max_num_tokens_ * columns) * sizeof(float);
  plan_.values_.push_back({layout_.reserve(bytes), columns, rows});
  states_.emplace_back();
  return {static_cast<int32_t>(states_.size()) - 1};
}

ValueId PlanRecorder::add_scratch(size_t bytes) {
  plan_.values_.push_back({layout_.reserve(bytes), 0, RowKind::tokens});
  states_.emplace_back();
  return {static_cast<int32_t>(states_.size()) - 1};
}

ValueId PlanRecorder::add_external() {
  return add_scratch(0);
}

bool PlanRecorder::needs_barrier(std::initializer_list<Access> reads,
                                 std::initializer_list<Access> writes) const {
  const auto conflicts = [](bool by_rows, bool by_other, Split split) {
    return by_other || (by_rows && split != Split::rows);
  };
  for (const Access& access : reads) {
    const State& state = states_[slot(access.value)];
    if (conflicts(state.written_rows, state.written_other, access.split)) return true;
  }
  for (const Access& access : writes) {
    const State& state = states_[slot(access.value)];
    if (conflicts(state.written_rows || state.read_rows, state.written_other || state.read_other,
                  access.split)) {
      return true;
    }
  }
  return false;
}

void PlanRecorder::add(std::unique_ptr<Step> step, std::initializer_list<Access> reads,
                       std::initializer_list<Access> writes) {
  const bool has_own = step->begins_with_barrier();
  const bool barrier = !has_own && needs_barrier(reads, writes);
  if (barrier || has_own) {
    for (State& state : states_) state = State{.version = state.version};
  }
  for (const Access& access : reads) {
    State& state = states_[slot(access.value)];
    (access.split == Split::rows ? state.read_rows : state.read_other) = true;
  }
  for (const Access& access : writes) {
    State& state = states_[slot(access.value)];
    (access.split == Split::rows ? state.written_rows : state.written_other) = true;
    ++state.version;
  }
  plan_.entries_.push_back({std::move(step), barrier});
}

Expected<Plan> PlanRecorder::finish() {
  auto arena = Buffer::allocate(layout_.size());
  if (!arena) return forward_error(arena);
  plan_.arena_ = std::move(*arena);
  return std::move(plan_);
}

}  // namespace tw
