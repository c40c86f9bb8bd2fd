#include "nn/step_trace.h"

#include <algorithm>

namespace tw {
namespace {

// Kinds of steps of the largest models, with room to spare: totals_ must not move while recording.
constexpr size_t kMaxKinds = 256;

double seconds(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

}  // namespace

StepTrace::StepTrace(int num_members, int64_t max_events)
    : members_(static_cast<size_t>(num_members)) {
  for (Member& member : members_) member.events.reserve(static_cast<size_t>(max_events));
  totals_.reserve(kMaxKinds);
}

void StepTrace::record(int rank, const StepEvent& event) {
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.events.size() < member.events.capacity()) {
    member.events.push_back(event);
  } else {
    ++member.num_dropped;
  }
  if (rank == 0) add_to_totals(event);
}

void StepTrace::add_to_totals(const StepEvent& event) {
  auto found = std::find_if(totals_.begin(), totals_.end(),
                            [&](const StepTiming& timing) { return timing.name == event.name; });
  if (found == totals_.end()) {
    if (totals_.size() == totals_.capacity()) return;
    totals_.push_back({.name = event.name});
    found = totals_.end() - 1;
  }
  found->seconds += seconds(event.arrival_ns, event.end_ns);
  found->wait_seconds += seconds(event.arrival_ns, event.begin_ns);
  ++found->calls;
  found->cost.bytes += event.cost.bytes;
  found->cost.operations += event.cost.operations;
}

int64_t StepTrace::num_dropped() const {
  int64_t count = 0;
  for (const Member& member : members_) count += member.num_dropped;
  return count;
}

}  // namespace tw
