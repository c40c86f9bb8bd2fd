#include "core/numa_memory.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace tw {

void prefer_memory_of_node(int node) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  constexpr int kMaxNodes = 1024;
  if (node < 0 || node >= kMaxNodes) return;
  unsigned long mask[kMaxNodes / kBits] = {};
  mask[node / kBits] = 1ul << (node % kBits);
  // The kernel counts one bit less than it is told.
  syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, static_cast<unsigned long>(kMaxNodes));
}

PagePlaces find_pages(std::span<const std::byte> memory, int node, int64_t max_samples) {
  PagePlaces places;
  if (memory.empty()) return places;
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory.data()) / page_size;
  const auto end = (reinterpret_cast<uintptr_t>(memory.data()) + memory.size() - 1) / page_size + 1;
  const uintptr_t step =
      std::max<uintptr_t>(1, (end - begin) / static_cast<uintptr_t>(max_samples));
  std::vector<void*> pages;
  for (uintptr_t page = begin; page < end; page += step) {
    pages.push_back(reinterpret_cast<void*>(page * page_size));
  }
  std::vector<int> nodes(pages.size(), -1);
  // Without target nodes, move_pages only asks. A page that was never touched has status -ENOENT,
  // or that of the shared zero page (-EFAULT).
  if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) {
    places.untouched = static_cast<int64_t>(pages.size());
    return places;
  }
  for (const int found : nodes) {
    ++(found < 0 ? places.untouched : found == node ? places.on_node : places.elsewhere);
  }
  return places;
}

}  // namespace tw
