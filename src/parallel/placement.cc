#include "parallel/placement.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <set>

#include "core/thread_team.h"

namespace tw {
namespace {

using CpuList = std::vector<int>;

struct LogicalNodes {
  int count = 0;
  int cores = 0;
};

std::optional<LogicalNodes> parse_logical_nodes(const std::string& text) {
  LogicalNodes nodes;
  const char* const end = text.data() + text.size();
  const auto [middle, first_problem] = std::from_chars(text.data(), end, nodes.count);
  if (first_problem != std::errc() || middle == end || *middle != 'x') return std::nullopt;
  const auto [last, second_problem] = std::from_chars(middle + 1, end, nodes.cores);
  if (second_problem != std::errc() || last != end) return std::nullopt;
  if (nodes.count < 1 || nodes.cores < 1) return std::nullopt;
  return nodes;
}

// The cores of each node, physical or logical.
Expected<std::vector<CpuList>> nodes_of(const Topology& topology, const std::string& numa) {
  std::vector<CpuList> nodes;
  const CpuList cores = topology.cores();
  if (numa == "auto") {
    for (const NumaNode& node : topology.nodes) nodes.push_back(node.cores);
    return nodes;
  }
  if (numa == "off") return std::vector<CpuList>{cores};
  const auto logical = parse_logical_nodes(numa);
  if (!logical) {
    return error(ErrorCode::invalid_argument,
                 "--numa {}: unknown; use auto, off, or NxC for N nodes of C cores", numa);
  }
  if (logical->count > static_cast<int>(cores.size()) / logical->cores) {
    return error(ErrorCode::invalid_argument,
                 "--numa {}: {} nodes of {} cores; {} cores may be used (CPUs {})", numa,
                 logical->count, logical->cores, cores.size(), format_cpu_list(cores));
  }
  for (int i = 0; i < logical->count; ++i) {
    const auto first = cores.begin() + i * logical->cores;
    nodes.emplace_back(first, first + logical->cores);
  }
  return nodes;
}

// Deals ranks over nodes in order.
Expected<std::vector<CpuList>> cores_of_ranks(const std::vector<CpuList>& nodes, int num_ranks) {
  const auto num_nodes = static_cast<int>(nodes.size());
  std::vector<CpuList> ranks;
  if (num_ranks <= num_nodes) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Range mine = partition(num_nodes, rank, num_ranks);
      CpuList& cores = ranks.emplace_back();
      for (auto n = static_cast<size_t>(mine.begin); n < static_cast<size_t>(mine.end); ++n) {
        cores.insert(cores.end(), nodes[n].begin(), nodes[n].end());
      }
    }
    return ranks;
  }
  for (int n = 0; n < num_nodes; ++n) {
    const CpuList& cores = nodes[static_cast<size_t>(n)];
    const auto num_cores = static_cast<int64_t>(cores.size());
    const auto sharing = static_cast<int>(partition(num_ranks, n, num_nodes).size());
    if (sharing > num_cores) {
      return error(ErrorCode::invalid_argument,
                   "--tp {}: {} ranks would share node {}, which has {} core{} (CPUs {}); a rank "
                   "needs a core of its own",
                   num_ranks, sharing, n, num_cores, num_cores == 1 ? "" : "s",
                   format_cpu_list(cores));
    }
    for (int i = 0; i < sharing; ++i) {
      const Range share = partition(num_cores, i, sharing);
      ranks.emplace_back(cores.begin() + share.begin, cores.begin() + share.end);
    }
  }
  return ranks;
}

Expected<std::vector<CpuList>> bound_cpus(const Topology& topology,
                                          const PlacementOptions& options) {
  if (options.numa != "auto") {
    return error(ErrorCode::invalid_argument,
                 "--cpu-bind {} and --numa {} both say where threads run; give one of them",
                 options.cpu_bind, options.numa);
  }
  CpuList allowed;
  for (const NumaNode& node : topology.nodes) {
    allowed.insert(allowed.end(), node.cpus.begin(), node.cpus.end());
  }
  std::sort(allowed.begin(), allowed.end());
  std::vector<CpuList> ranks;
  std::set<int> seen;
  std::string_view rest = options.cpu_bind;
  for (bool more = true; more;) {
    const size_t bar = rest.find('|');
    more = bar != std::string_view::npos;
    auto cpus = parse_cpu_list(rest.substr(0, bar));
    if (!cpus) {
      return error(cpus.error().code, "--cpu-bind {}: {}", options.cpu_bind, cpus.error().message);
    }
    if (cpus->empty()) {
      return error(ErrorCode::invalid_argument, "--cpu-bind {}: a rank has no CPU",
                   options.cpu_bind);
    }
    for (const int cpu : *cpus) {
      if (!std::ranges::binary_search(allowed, cpu)) {
        return error(ErrorCode::invalid_argument,
                     "--cpu-bind {}: CPU {} may not be used; those of this process are {}",
                     options.cpu_bind, cpu, format_cpu_list(allowed));
      }
      if (!seen.insert(cpu).second) {
        return error(ErrorCode::invalid_argument, "--cpu-bind {}: CPU {} is named twice",
                     options.cpu_bind, cpu);
      }
    }
    ranks.push_back(std::move(*cpus));
    if (more) rest.remove_prefix(bar + 1);
  }
  if (static_cast<int>(ranks.size()) != options.num_ranks) {
    return error(ErrorCode::invalid_argument,
                 "--cpu-bind {}: {} lists of CPUs for --tp {}; separate one for each rank by |",
                 options.cpu_bind, ranks.size(), options.num_ranks);
  }
  return ranks;
}

// How many of `num_threads` each rank gets: equal shares, as far as its cores go; what remains goes
// to ranks that have more.
std::vector<int> deal_threads(const std::vector<CpuList>& ranks, int num_threads) {
  const auto num_ranks = static_cast<int>(ranks.size());
  std::vector<int> counts;
  int left = num_threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto cores = static_cast<int>(ranks[static_cast<size_t>(rank)].size());
    counts.push_back(
        std::min(cores, static_cast<int>(partition(num_threads, rank, num_ranks).size())));
    left -= counts.back();
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int spare = static_cast<int>(ranks[rank].size()) - counts[rank];
    const int more = std::min(spare, left);
    counts[rank] += more;
    left -= more;
  }
  return counts;
}

}  // namespace

std::string Placement::describe() const {
  std::string text;
  for (size_t rank = 0; rank < teams.size(); ++rank) {
    const TeamPlace& team = teams[rank];
    if (!text.empty()) text += "; ";
    if (teams.size() > 1) text += fmt::format("rank {}: ", rank);
    text += fmt::format("{} thread{}", team.num_threads, team.num_threads == 1 ? "" : "s");
    text += team.cpus.empty() ? ", not pinned" : " on CPUs " + format_cpu_list(team.cpus);
    if (team.node >= 0) text += fmt::format(", node {}", team.node);
  }
  return text;
}

Expected<Placement> place_teams(const Topology& topology, const PlacementOptions& options) {
  std::vector<CpuList> ranks;
  if (!options.cpu_bind.empty()) {
    auto bound = bound_cpus(topology, options);
    if (!bound) return forward_error(bound);
    ranks = std::move(*bound);
  } else {
    auto nodes = nodes_of(topology, options.numa);
    if (!nodes) return forward_error(nodes);
    auto dealt = cores_of_ranks(*nodes, options.num_ranks);
    if (!dealt) return forward_error(dealt);
    ranks = std::move(*dealt);
  }

  const int cores = std::accumulate(
      ranks.begin(), ranks.end(), 0,
      [](int sum, const CpuList& cpus) { return sum + static_cast<int>(cpus.size()); });
  int threads = options.num_threads;
  if (threads == 0) {
    threads = options.cpu_quota > 0 ? std::min(options.cpu_quota, cores) : cores;
    threads = std::max(threads, options.num_ranks);
  }
  if (threads < options.num_ranks) {
    return error(ErrorCode::invalid_argument, "--threads {}: --tp {} needs at least a thread each",
                 threads, options.num_ranks);
  }
  Placement placement;
  if (threads > cores) {
    if (options.num_ranks > 1 || !options.cpu_bind.empty()) {
      return error(ErrorCode::invalid_argument,
                   "--threads {}: the rank{} {} core{} in all; leave it out, or lower it", threads,
                   options.num_ranks == 1 ? " has" : "s have", cores, cores == 1 ? "" : "s");
    }
    placement.teams.push_back({threads, {}, topology.node_of(ranks[0])});
    return placement;
  }
  const std::vector<int> counts = deal_threads(ranks, threads);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    CpuList cpus(ranks[rank].begin(), ranks[rank].begin() + counts[rank]);
    const int node = topology.node_of(cpus);
    if (!options.pin) cpus.clear();
    placement.teams.push_back({counts[rank], std::move(cpus), options.numa == "off" ? -1 : node});
  }
  return placement;
}

}  // namespace tw
