#include "core/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <set>

namespace tw {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxCpus = 1 << 16;

std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Of lines such as "Node 0 MemFree:  123 kB".
int64_t available_memory(const fs::path& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    for (const std::string key : {" MemFree:", " Active(file):", " Inactive(file):"}) {
      const size_t found = line.find(key);
      if (found == std::string::npos) continue;
      bytes += std::strtoll(line.c_str() + found + key.size(), nullptr, 10) * 1024;
    }
  }
  return bytes;
}

// The first allowed processor of each physical core.
std::vector<int> one_per_core(const std::vector<int>& allowed, const fs::path& root) {
  std::vector<int> cpus;
  std::set<std::string> seen_cores;
  for (const int cpu : allowed) {
    const std::string core =
        read_line(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) /
                  "topology/thread_siblings_list");
    if (core.empty() || seen_cores.insert(core).second) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> affinity_cpus() {
  // The mask of a large machine needs more than a cpu_set_t.
  for (int count = CPU_SETSIZE; count <= kMaxCpus; count *= 4) {
    const size_t size = CPU_ALLOC_SIZE(count);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(count), [](cpu_set_t* each) { CPU_FREE(each); });
    if (set == nullptr) break;
    CPU_ZERO_S(size, set.get());
    if (sched_getaffinity(0, size, set.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, size, set.get())) cpus.push_back(cpu);
    }
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

bool contains(const std::vector<int>& cpus, int cpu) {
  return std::ranges::find(cpus, cpu) != cpus.end();
}

}  // namespace

std::vector<int> Topology::cores() const {
  std::vector<int> all;
  for (const NumaNode& node : nodes) all.insert(all.end(), node.cores.begin(), node.cores.end());
  return all;
}

int Topology::node_of(std::span<const int> cpus) const {
  for (const NumaNode& node : nodes) {
    if (std::ranges::all_of(cpus, [&](int cpu) { return contains(node.cpus, cpu); })) {
      return node.id;
    }
  }
  return -1;
}

Topology detect_topology(const std::vector<int>& allowed, const fs::path& root) {
  Topology topology;
  const std::vector<int> cores = one_per_core(allowed, root);
  std::vector<int> left = allowed;
  const auto add_node = [&](NumaNode node, const std::vector<int>& cpus) {
    for (const int cpu : cpus) {
      if (!contains(left, cpu)) continue;
      node.cpus.push_back(cpu);
      if (contains(cores, cpu)) node.cores.push_back(cpu);
    }
    std::erase_if(left, [&](int cpu) { return contains(node.cpus, cpu); });
    if (!node.cores.empty()) topology.nodes.push_back(std::move(node));
  };
  const fs::path folder = root / "sys/devices/system/node";
  const auto online = parse_cpu_list(read_line(folder / "online"));
  for (const int id : online.value_or(std::vector<int>{})) {
    const fs::path node = folder / ("node" + std::to_string(id));
    const auto listed = parse_cpu_list(read_line(node / "cpulist"));
    add_node({id, {}, {}, available_memory(node / "meminfo")}, listed.value_or(std::vector<int>{}));
  }
  // A system without nodes, or processors that it puts into none.
  add_node({-1, {}, {}, 0}, std::vector<int>(left));
  return topology;
}

Topology detect_topology() {
  return detect_topology(affinity_cpus());
}

Expected<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& value) {
    const auto [next, problem] = std::from_chars(at, end, value);
    const bool valid = problem == std::errc() && next != at && value >= 0 && value < kMaxCpus;
    at = next;
    return valid;
  };
  const auto broken = [&] {
    return error(ErrorCode::invalid_argument,
                 "\"{}\" is no list of CPUs; write numbers and ranges, such as 0-3,8", text);
  };
  while (at != end) {
    int first = 0;
    if (!number(first)) return broken();
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!number(last) || last < first) return broken();
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at == end) break;
    if (*at != ',' || ++at == end) return broken();
  }
  return cpus;
}

std::string format_cpu_list(std::span<const int> cpus) {
  std::string text;
  for (size_t begin = 0; begin < cpus.size();) {
    size_t end = begin + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[begin]);
    if (end - begin > 1) text += '-' + std::to_string(cpus[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace tw
