// On which memory node pages lie. Direct system calls: libnuma would add nothing but a dependency.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tw {

// Asks the system to place what this thread touches first on `node`, falling back to other nodes
// when it is full. Replaces a policy that the process was started with. Does nothing for -1, and
// where the system forbids it (a container): then pages lie where the thread runs, which for a
// pinned thread is the same.
void prefer_memory_of_node(int node);

struct PagePlaces {
  int64_t on_node = 0;
  int64_t elsewhere = 0;
  int64_t untouched = 0;  // or unknown
};

// Where pages of these bytes lie (move_pages): all of them, or about `max_samples` evenly spaced.
PagePlaces find_pages(std::span<const std::byte> memory, int node, int64_t max_samples = 4096);

}  // namespace tw
