// The plan of a forward pass: steps recorded once, replayed for every batch.
//
// A step is a kernel call with its operands bound to offsets of one arena. How many rows it works
// on comes from the batch; everything else is fixed when the plan is recorded. Replaying allocates
// nothing, takes no lock and looks nothing up: every member of the thread team walks the same list
// and computes its share of each step.
//
// Members meet at a barrier only where data crosses between them. The recorder derives those
// places from what each step says it reads and writes and how it splits the work (see Access).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "nn/batch.h"
#include "nn/step_trace.h"

namespace tw {

// Rows of a value: one per token of the batch, or one per token whose logits or final hidden state
// are wanted.
enum class RowKind : uint8_t { tokens, logits, states };

inline int64_t num_rows(RowKind kind, const Batch& batch) {
  switch (kind) {
    case RowKind::tokens:
      return batch.num_tokens();
    case RowKind::logits:
      return batch.num_logits();
    case RowKind::states:
      return batch.num_states();
  }
  return 0;
}

// Rows by the class of their token, see Batch.
enum class RowPart : uint8_t { all, generated, prompt };

inline Range row_range(RowPart part, RowKind kind, const Batch& batch) {
  const int64_t rows = num_rows(kind, batch);
  if (part == RowPart::all) return {0, rows};
  const int64_t generated = kind == RowKind::tokens   ? batch.num_generated_tokens
                            : kind == RowKind::logits ? batch.num_generated_logits()
                                                      : 0;
  return part == RowPart::generated ? Range{0, generated} : Range{generated, rows};
}

// A matrix of activations in the arena, or memory outside it that steps share (the KV cache).
struct ValueId {
  int32_t index = -1;
};

// How a step's work on a value is split over the members. Two steps that both split by rows touch
// the same rows on the same member, so no barrier is needed between them.
enum class Split : uint8_t {
  rows,   // member.share(num_rows)
  other,  // by output channels, heads, work items: assume nothing
};

struct Access {
  ValueId value;
  Split split = Split::other;
};

struct StepContext {
  const Batch& batch;
  const TeamMember& member;
  std::byte* arena;
};

class Step {
 public:
  virtual ~Step() = default;
  virtual std::string_view name() const = 0;
  // Computes this member's share. Called by all members of the team.
  virtual void run(const StepContext& context) const = 0;
  virtual StepCost cost(const Batch& batch) const { return {}; }
  // Whether run() begins with a barrier of the team (or of more than it): no other is needed.
  virtual bool begins_with_barrier() const { return false; }
};

class Plan {
 public:
  Plan() = default;

  // Replays all steps on the team. With a trace, each is clocked, the team's members being the
  // trace's from `first_member` on.
  void run(const Batch& batch, ThreadTeam& team, StepTrace* trace = nullptr,
           int first_member = 0) const;

  // What a replay moves and computes, on all members together.
  StepCost cost(const Batch& batch) const;

  // The value's first rows: [num_rows, columns] fp32.
  Matrix<float> view(ValueId value, int64_t rows) const;

  int64_t num_steps() const { return static_cast<int64_t>(entries_.size()); }
  int64_t num_barriers() const;
  size_t arena_bytes() const { return arena_.size(); }

 private:
  friend class PlanRecorder;
  void run_traced(const Batch& batch, ThreadTeam& team, StepTrace& trace, int first_member) const;
  struct Entry {
    std::unique_ptr<Step> step;
    bool barrier_before = false;
  };
  struct Value {
    size_t offset = 0;
    int64_t columns = 0;
    RowKind rows = RowKind::tokens;
  };
  std::vector<Entry> entries_;
  std::vector<Value> values_;
  Buffer arena_;
};

// Records steps into a plan.
class PlanRecorder {
 public:
  explicit PlanRecorder(int64_t max_num_tokens) : max_num_tokens_(max_num_tokens) {}

  // Room for [rows of the batch, columns] fp32.
  ValueId add_value(RowKind rows, int64_t columns);
  // Room of a fixed size, e.g. for prepared activations or attention partials.
  ValueId add_scratch(size_t bytes);
  // Something outside the arena whose readers and writers must be ordered (the KV cache).
  ValueId add_external();

  size_t offset(ValueId value) const { return plan_.values_[slot(value)].offset; }
  int64_t columns(ValueId value) const { return plan_.values_[slot(value)].columns; }
  RowKind rows(ValueId value) const { return plan_.values_[slot(value)].rows; }
  int64_t max_num_tokens() const { return max_num_tokens_; }
  // Counts the writes of a value: equal numbers mean equal contents.
  int32_t version(ValueId value) const { return states_[slot(value)].version; }

  void add(std::unique_ptr<Step> step, std::initializer_list<Access> reads,
           std::initializer_list<Access> writes);

  // Allocates the arena. The recorder is empty afterwards.
  Expected<Plan> finish();

 private:
  // What happened to a value since the last barrier.
  struct State {
    bool read_rows = false, read_other = false;
    bool written_rows = false, written_other = false;
    int32_t version = 0;
  };
  static size_t slot(ValueId value) { return static_cast<size_t>(value.index); }
  bool needs_barrier(std::initializer_list<Access> reads,
                     std::initializer_list<Access> writes) const;

  Plan plan_;
  ArenaLayout layout_;
  std::vector<State> states_;
  int64_t max_num_tokens_;
};

}  // namespace tw
