// The thread teams of a host's ranks: one team per rank, all in one address space.
//
// A run wakes the leader of each rank, which is member 0 of its team; what the leaders then do
// (load a shard of the weights, replay a plan) they do with their teams. The thread that calls
// run() leads rank 0.
#pragma once

#include <memory>
#include <vector>

#include "core/thread_team.h"
#include "parallel/placement.h"

namespace tw {

class TeamGroup {
 public:
  explicit TeamGroup(const Placement& placement);
  // Teams that the system places, for tests: `sizes` threads each.
  explicit TeamGroup(const std::vector<int>& sizes);

  int num_ranks() const { return leaders_.size(); }
  ThreadTeam& team(int rank) { return *teams_[static_cast<size_t>(rank)]; }
  const TeamPlace& place(int rank) const { return placement_.teams[static_cast<size_t>(rank)]; }
  int num_threads() const;
  // See Placement.
  std::string describe() const { return placement_.describe(); }

  // body(rank) on the leader of each rank; returns when all have finished. One caller at a time.
  template <typename Body>
  void run(const Body& body) {
    leaders_.run([&](const TeamMember& leader) { body(leader.rank()); });
  }

  // Makes the calling thread what rank 0's leader has to be: pinned to its core, its memory on its
  // node. For threads that do nothing else from then on.
  void adopt_caller() const;

 private:
  const Placement placement_;
  std::vector<std::unique_ptr<ThreadTeam>> teams_;
  ThreadTeam leaders_;
};

}  // namespace tw
