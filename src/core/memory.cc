#include "core/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace tw {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or the word "max"
}

std::optional<int64_t> read_meminfo(const fs::path& root, const std::string& key) {
  std::ifstream file(root / "proc/meminfo");
  std::string name;
  int64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    kib = std::strtoll(line.c_str() + key.size() + 1, nullptr, 10);
    return kib * 1024;
  }
  return std::nullopt;
}

// Page cache that the kernel gives back under pressure counts as used in the cgroup, not for us.
int64_t reclaimable(const fs::path& group) {
  std::ifstream file(group / "memory.stat");
  std::string key;
  int64_t value = 0, sum = 0;
  while (file >> key >> value) {
    if (key == "inactive_file" || key == "active_file") sum += value;
  }
  return sum;
}

struct GroupFiles {
  fs::path directory;
  const char* limit;
  const char* usage;
};

// Every group from the process's own up to the root: the tightest limit on the way holds.
std::vector<GroupFiles> memory_groups(const fs::path& root) {
  std::vector<GroupFiles> groups;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) continue;
    const fs::path base = root / (v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const char* limit = v2 ? "memory.max" : "memory.limit_in_bytes";
    const char* usage = v2 ? "memory.current" : "memory.usage_in_bytes";
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();;
         path = path.parent_path()) {
      groups.push_back({base / path, limit, usage});
      if (path.empty()) break;
    }
  }
  return groups;
}

}  // namespace

MemoryLimits detect_memory_limits(const fs::path& root) {
  MemoryLimits limits;
  limits.total = read_meminfo(root, "MemTotal").value_or(0);
  limits.available = read_meminfo(root, "MemAvailable").value_or(limits.total);
  for (const auto& group : memory_groups(root)) {
    const auto limit = read_number(group.directory / group.limit);
    if (!limit || *limit >= limits.total) continue;
    const int64_t used = read_number(group.directory / group.usage).value_or(0);
    const int64_t free_in_group =
        std::max<int64_t>(0, *limit - used + std::min(used, reclaimable(group.directory)));
    limits.total = *limit;
    limits.limited_by_cgroup = true;
    limits.available = std::min(limits.available, free_in_group);
  }
  return limits;
}

int64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

}  // namespace tw
