// What a plan's replays cost, step by step: totals per kind of step, and on request every single
// event of every member of the team, for a trace.
//
// Each member writes to a list of its own that never grows beyond what was set aside, so that
// tracing neither locks nor allocates.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tw {

// What a step moves and computes, for the roofline.
struct StepCost {
  int64_t bytes = 0;       // read and written in main memory, at the least
  int64_t operations = 0;  // multiplications and additions

  StepCost& operator+=(const StepCost& other) {
    bytes += other.bytes;
    operations += other.operations;
    return *this;
  }
};

// One step on one member, in nanoseconds of the steady clock.
struct StepEvent {
  std::string_view name;   // of the step; lives as long as its plan
  int64_t arrival_ns = 0;  // the member is done with the step before
  int64_t begin_ns = 0;    // the others are, too
  int64_t end_ns = 0;
  StepCost cost = {};  // of all of its team's members together; kept by the team's first
};

// All events of one name as member 0 saw them, its waits included. The wait at a barrier belongs to
// the step before it, but is charged to the one that needs it: the one whose split could change.
struct StepTiming {
  std::string_view name;
  double seconds = 0;
  double wait_seconds = 0;  // of those, at the barrier before
  int64_t calls = 0;
  StepCost cost = {};
};

class StepTrace {
 public:
  // `max_events` per member; beyond it events count in the totals alone.
  explicit StepTrace(int num_members, int64_t max_events = 0);

  void record(int rank, const StepEvent& event);

  int num_members() const { return static_cast<int>(members_.size()); }
  std::span<const StepEvent> events(int rank) const {
    return members_[static_cast<size_t>(rank)].events;
  }
  // Events that found no room.
  int64_t num_dropped() const;
  // In order of their first appearance.
  std::span<const StepTiming> totals() const { return totals_; }

 private:
  // On cache lines of its own.
  struct alignas(64) Member {
    std::vector<StepEvent> events;
    int64_t num_dropped = 0;
  };
  void add_to_totals(const StepEvent& event);

  std::vector<Member> members_;
  std::vector<StepTiming> totals_;
};

}  // namespace tw
