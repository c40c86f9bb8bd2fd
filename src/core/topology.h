// The machine's processors by memory node, as far as this process may use them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace tw {

struct NumaNode {
  int id = 0;                    // the system's number; -1 where it has none
  std::vector<int> cores;        // one processor per physical core, ascending
  std::vector<int> cpus;         // all of them, hyperthreads included
  int64_t available_memory = 0;  // bytes, free or of cached files; 0: unknown
};

struct Topology {
  std::vector<NumaNode> nodes;  // those with a processor that may be used; at least one

  // One processor per physical core, in order of the nodes.
  std::vector<int> cores() const;
  // The node of these processors' memory; -1 where they lie in several, or in none that is known.
  int node_of(std::span<const int> cpus) const;
};

// Reads /sys/devices/system. `allowed`: the processors that affinity and the cgroup's cpuset leave.
// `root` is "/" outside tests.
Topology detect_topology(const std::vector<int>& allowed, const std::filesystem::path& root = "/");
// Of this thread's affinity mask, which a cpuset limits, too.
Topology detect_topology();

// "0-3,8,10-11" -> 0 1 2 3 8 10 11, as the kernel and taskset write lists.
Expected<std::vector<int>> parse_cpu_list(std::string_view text);
// The reverse.
std::string format_cpu_list(std::span<const int> cpus);

}  // namespace tw
