// How much memory this process may really use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tw {

struct MemoryLimits {
  int64_t total = 0;      // bytes: the machine's, or the cgroup's limit if lower
  int64_t available = 0;  // bytes that can be taken now without swapping or being killed
  bool limited_by_cgroup = false;
};

// Reads /proc/meminfo and the process's cgroup (v2, then v1). `root` is "/" outside tests.
MemoryLimits detect_memory_limits(const std::filesystem::path& root = "/");

// Resident set of this process in bytes (anonymous and file pages).
int64_t resident_memory();

}  // namespace tw
