// What the engine did while a profile was taken: every step of the engine, and inside of it every
// step of the model's plan on every thread. Written as a trace for Perfetto; summed up as a table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/machine_limits.h"
#include "core/status.h"
#include "nn/step_trace.h"

namespace tw {

// Events that a profile keeps at most, of all threads together (64 bytes each). Beyond it the table
// goes on, the trace ends.
inline constexpr int64_t kMaxProfileEvents = int64_t{1} << 22;

// One step of the engine, in nanoseconds of the steady clock.
struct EngineStepEvent {
  int64_t begin_ns = 0;
  int64_t scheduled_ns = 0;  // the batch is chosen
  int64_t forwarded_ns = 0;  // its logits are computed
  int64_t end_ns = 0;        // sampled, answered
  int32_t num_tokens = 0;
  int32_t num_seqs = 0;
};

class EngineProfile {
 public:
  // Records until it is stopped, or for max_steps steps of the engine if that is not 0.
  EngineProfile(int num_threads, int64_t max_steps);

  StepTrace& model_steps() { return model_steps_; }
  const StepTrace& model_steps() const { return model_steps_; }
  const std::vector<EngineStepEvent>& engine_steps() const { return engine_steps_; }

  void add(const EngineStepEvent& event);
  // Has recorded as many steps as it was asked to.
  bool complete() const { return max_steps_ > 0 && num_steps_ >= max_steps_; }
  int64_t num_steps() const { return num_steps_; }
  // Events that found no room in the trace.
  int64_t num_dropped() const;

  // The engine whose steps were recorded must still be there.
  Status write_trace(const std::string& path) const;
  // Where the time of a step goes; `limits`: of the machine, to compare with.
  std::string summary(std::span<const RankLimits> limits = {}) const;

 private:
  int64_t max_steps_;
  int64_t num_steps_ = 0;
  int64_t schedule_ns_ = 0, forward_ns_ = 0, sample_ns_ = 0;
  StepTrace model_steps_;
  std::vector<EngineStepEvent> engine_steps_;
};

// Adds a track per thread to a trace.
class ChromeTraceWriter;
void write_step_events(const StepTrace& steps, ChromeTraceWriter& writer);

// A table of a trace's totals: share of the time, waits, GB/s and GOP/s of each kind of step.
std::string step_table(const StepTrace& steps);

}  // namespace tw
