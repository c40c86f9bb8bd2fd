// Which processors compute for which rank of a host, and on which memory node they lie.
//
// A rank of tensor parallelism is a team of threads pinned to cores that share a memory node. Ranks
// are dealt over the nodes in order: as many ranks as nodes gives one each; fewer ranks get several
// neighbouring nodes; of more, some share a node and divide its cores. Only one thread per physical
// core is placed, and only on processors that affinity and the cgroup leave to this process.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "core/topology.h"

namespace tw {

struct PlacementOptions {
  int num_ranks = 1;
  // auto: the machine's nodes; off: one node of all cores; NxC: N logical nodes of C cores each.
  std::string numa = "auto";
  // A list of processors for each rank, "0-42|43-85"; empty: chosen.
  std::string cpu_bind = {};
  int num_threads = 0;  // of all ranks; 0: one per core
  int cpu_quota = 0;    // threads that the cgroup's quota keeps busy; 0: no quota
  bool pin = true;
};

struct TeamPlace {
  int num_threads = 0;
  std::vector<int> cpus;  // of the threads; empty: not pinned
  int node = -1;          // of its memory; -1: of several nodes, or unknown
};

struct Placement {
  std::vector<TeamPlace> teams;  // one per rank
  // "rank 0: 43 threads on CPUs 0-42, node 0; rank 1: ..." for the log.
  std::string describe() const;
};

// Errors name the flag, what it asks for and what there is. One rank may have more threads than
// there are cores; they are not pinned then.
Expected<Placement> place_teams(const Topology& topology, const PlacementOptions& options);

}  // namespace tw
