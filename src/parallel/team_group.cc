#include "parallel/team_group.h"

#include "core/check.h"
#include "core/numa_memory.h"

namespace tw {
namespace {

Placement unpinned(const std::vector<int>& sizes) {
  Placement placement;
  for (const int size : sizes) placement.teams.push_back({size, {}, -1});
  return placement;
}

// The first processor of each team, or none where teams are not pinned.
std::vector<int> leader_cpus(const std::vector<TeamPlace>& places) {
  std::vector<int> cpus;
  for (const TeamPlace& place : places) {
    if (place.cpus.empty()) return {};
    cpus.push_back(place.cpus.front());
  }
  return cpus;
}

}  // namespace

TeamGroup::TeamGroup(const std::vector<int>& sizes) : TeamGroup(unpinned(sizes)) {}

TeamGroup::TeamGroup(const Placement& placement)
    : placement_(placement),
      leaders_(static_cast<int>(placement.teams.size()), leader_cpus(placement.teams)) {
  for (const TeamPlace& place : placement_.teams) {
    teams_.push_back(std::make_unique<ThreadTeam>(place.num_threads, place.cpus));
  }
  run([this](int rank) {
    this->team(rank).run([&](const TeamMember& member) {
      // Rank 0's leader is whoever calls: adopt_caller() is for that.
      if (rank > 0 || member.rank() > 0) prefer_memory_of_node(place(rank).node);
    });
  });
}

int TeamGroup::num_threads() const {
  int sum = 0;
  for (const TeamPlace& place : placement_.teams) sum += place.num_threads;
  return sum;
}

void TeamGroup::adopt_caller() const {
  teams_.front()->pin_caller();
  prefer_memory_of_node(placement_.teams.front().node);
}

}  // namespace tw
