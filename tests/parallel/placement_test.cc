// Placement on machines that are described, not there: sockets, sub-NUMA clusters of different
// sizes, hyperthreads, cpusets.
#include "parallel/placement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

namespace tw {
namespace {

namespace fs = std::filesystem;

// A folder that looks like /sys of a machine: node n has cores_per_node[n] cores, numbered through,
// and each core's second hyperthread has the number of the first plus the number of cores.
class FakeMachine {
 public:
  explicit FakeMachine(const std::vector<int>& cores_per_node)
      : root_(fs::temp_directory_path() / ("tw_topology_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    num_cores_ = std::accumulate(cores_per_node.begin(), cores_per_node.end(), 0);
    int first = 0;
    for (size_t n = 0; n < cores_per_node.size(); ++n) {
      const int last = first + cores_per_node[n] - 1;
      const std::string folder = "node/node" + std::to_string(n);
      write(folder + "/cpulist",
            fmt::format("{}-{},{}-{}", first, last, first + num_cores_, last + num_cores_));
      write(folder + "/meminfo",
            fmt::format("Node {0} MemTotal:  9000 kB\nNode {0} MemFree:   1024 kB\n"
                        "Node {0} Active(file):   512 kB\nNode {0} Inactive(file):   512 kB\n",
                        n));
      for (int cpu = first; cpu <= last; ++cpu) {
        for (const int each : {cpu, cpu + num_cores_}) {
          write(fmt::format("cpu/cpu{}/topology/thread_siblings_list", each),
                fmt::format("{},{}", cpu, cpu + num_cores_));
        }
      }
      first = last + 1;
    }
    write("node/online", fmt::format("0-{}", cores_per_node.size() - 1));
  }
  ~FakeMachine() { fs::remove_all(root_); }

  Topology topology() const {
    std::vector<int> all(static_cast<size_t>(2 * num_cores_));
    std::iota(all.begin(), all.end(), 0);
    return detect_topology(all, root_);
  }
  Topology topology(const std::string& cpuset) const {
    return detect_topology(*parse_cpu_list(cpuset), root_);
  }

 private:
  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / "sys/devices/system" / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  fs::path root_;
  int num_cores_ = 0;
};

std::vector<std::string> cpus_of(const Expected<Placement>& placement) {
  std::vector<std::string> lists;
  if (!placement) return {placement.error().message};
  for (const TeamPlace& team : placement->teams) {
    EXPECT_EQ(static_cast<size_t>(team.num_threads), team.cpus.size());
    lists.push_back(format_cpu_list(team.cpus));
  }
  return lists;
}

using Lists = std::vector<std::string>;

TEST(CpuList, ReadsAndWritesWhatTheKernelDoes) {
  for (const char* text : {"", "0", "0-3", "0-3,8,10-11", "5,7"}) {
    EXPECT_EQ(format_cpu_list(*parse_cpu_list(text)), text);
  }
  for (const char* text : {"a", "1-", "3-1", "1,,2", "1,", "-1", "0-99999999", "1 2"}) {
    EXPECT_FALSE(parse_cpu_list(text)) << text;
  }
}

TEST(Topology, HasOneProcessorPerCoreOfEachNode) {
  const FakeMachine machine({4, 4});
  const Topology topology = machine.topology();
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(format_cpu_list(topology.nodes[0].cores), "0-3");
  EXPECT_EQ(format_cpu_list(topology.nodes[1].cores), "4-7");
  EXPECT_EQ(format_cpu_list(topology.nodes[1].cpus), "4-7,12-15");
  EXPECT_EQ(topology.nodes[1].available_memory, 2 << 20);
}

TEST(Topology, HonoursTheCpuset) {
  const FakeMachine machine({4, 4});
  // Of core 3 only the second hyperthread may be used, of node 1 nothing.
  const Topology topology = machine.topology("1-2,9,11");
  ASSERT_EQ(topology.nodes.size(), 1u);
  EXPECT_EQ(format_cpu_list(topology.nodes[0].cores), "1-2,11");
}

TEST(Topology, OfThisMachineHasCores) {
  const Topology topology = detect_topology();
  ASSERT_FALSE(topology.nodes.empty());
  EXPECT_FALSE(topology.cores().empty());
}

TEST(Placement, ARankPerNodeThatMayBeUneven) {
  const FakeMachine machine({43, 43, 42});
  const auto placement = place_teams(machine.topology(), {.num_ranks = 3});
  EXPECT_EQ(cpus_of(placement), (Lists{"0-42", "43-85", "86-127"}));
  EXPECT_EQ(placement->teams[2].node, 2);
  EXPECT_EQ(placement->describe(),
            "rank 0: 43 threads on CPUs 0-42, node 0; rank 1: 43 threads on CPUs 43-85, node 1; "
            "rank 2: 42 threads on CPUs 86-127, node 2");
}

TEST(Placement, FewerRanksGetSeveralNodes) {
  const FakeMachine machine({4, 4, 4, 4, 4, 4});
  EXPECT_EQ(cpus_of(place_teams(machine.topology(), {.num_ranks = 2})), (Lists{"0-11", "12-23"}));
  const auto one = place_teams(machine.topology(), {});
  EXPECT_EQ(cpus_of(one), Lists{"0-23"});
  EXPECT_EQ(one->teams[0].node, -1);  // no single node
}

TEST(Placement, MoreRanksShareNodesWithoutCrossingThem) {
  const FakeMachine machine({4, 4});
  EXPECT_EQ(cpus_of(place_teams(machine.topology(), {.num_ranks = 3})),
            (Lists{"0-3", "4-5", "6-7"}));
  EXPECT_EQ(cpus_of(place_teams(machine.topology(), {.num_ranks = 5})),
            (Lists{"0-1", "2-3", "4", "5", "6-7"}));
}

TEST(Placement, OffKnowsNoNodes) {
  const FakeMachine machine({4, 4});
  const auto placement = place_teams(machine.topology(), {.num_ranks = 2, .numa = "off"});
  EXPECT_EQ(cpus_of(placement), (Lists{"0-3", "4-7"}));
  EXPECT_EQ(placement->teams[0].node, -1);
}

TEST(Placement, LogicalNodesTakeCoresInOrder) {
  const FakeMachine machine({4, 4});
  const Topology topology = machine.topology();
  EXPECT_EQ(cpus_of(place_teams(topology, {.num_ranks = 2, .numa = "2x1"})), (Lists{"0", "1"}));
  const auto three = place_teams(topology, {.num_ranks = 3, .numa = "3x2"});
  EXPECT_EQ(cpus_of(three), (Lists{"0-1", "2-3", "4-5"}));
  EXPECT_EQ(three->teams[2].node, 1);  // memory lies where the cores are
}

TEST(Placement, ThreadsAreDealtEvenlyAsFarAsCoresGo) {
  const FakeMachine machine({4, 2});
  const Topology topology = machine.topology();
  EXPECT_EQ(cpus_of(place_teams(topology, {.num_ranks = 2, .num_threads = 3})),
            (Lists{"0", "4-5"}));
  EXPECT_EQ(cpus_of(place_teams(topology, {.num_ranks = 2, .num_threads = 6})),
            (Lists{"0-3", "4-5"}));
  EXPECT_EQ(cpus_of(place_teams(topology, {.num_ranks = 2, .num_threads = 5})),
            (Lists{"0-2", "4-5"}));
}

TEST(Placement, AQuotaLimitsThreadsButLeavesEachRankOne) {
  const FakeMachine machine({4, 4});
  const Topology topology = machine.topology();
  EXPECT_EQ(cpus_of(place_teams(topology, {.cpu_quota = 3})), Lists{"0-2"});
  EXPECT_EQ(cpus_of(place_teams(topology, {.num_ranks = 2, .cpu_quota = 1})), (Lists{"0", "4"}));
}

TEST(Placement, CpuBindIsTakenAsGiven) {
  const FakeMachine machine({4, 4});
  const auto placement =
      place_teams(machine.topology(), {.num_ranks = 2, .cpu_bind = "2-3,10|4-5"});
  EXPECT_EQ(cpus_of(placement), (Lists{"2-3,10", "4-5"}));
  EXPECT_EQ(placement->teams[0].node, 0);
}

TEST(Placement, OneRankMayHaveMoreThreadsThanCores) {
  const FakeMachine machine({2});
  const auto placement = place_teams(machine.topology(), {.num_threads = 5});
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->teams[0].num_threads, 5);
  EXPECT_TRUE(placement->teams[0].cpus.empty());
}

TEST(Placement, RefusesWhatCannotBe) {
  const FakeMachine machine({2, 2});
  const Topology topology = machine.topology();
  const struct {
    PlacementOptions options;
    const char* message;
  } cases[] = {
      {{.num_ranks = 5},
       "--tp 5: 3 ranks would share node 1, which has 2 cores (CPUs 2-3); a rank needs a core of "
       "its own"},
      {{.numa = "numa"}, "--numa numa: unknown; use auto, off, or NxC for N nodes of C cores"},
      {{.numa = "2x"}, "--numa 2x: unknown; use auto, off, or NxC for N nodes of C cores"},
      {{.numa = "0x2"}, "--numa 0x2: unknown; use auto, off, or NxC for N nodes of C cores"},
      {{.numa = "3x2"}, "--numa 3x2: 3 nodes of 2 cores; 4 cores may be used (CPUs 0-3)"},
      {{.num_ranks = 2, .num_threads = 1}, "--threads 1: --tp 2 needs at least a thread each"},
      {{.num_ranks = 2, .num_threads = 9},
       "--threads 9: the ranks have 4 cores in all; leave it out, or lower it"},
      {{.numa = "off", .cpu_bind = "0"},
       "--cpu-bind 0 and --numa off both say where threads run; give one of them"},
      {{.cpu_bind = "0|1"},
       "--cpu-bind 0|1: 2 lists of CPUs for --tp 1; separate one for each rank by |"},
      {{.cpu_bind = "0-9"}, "--cpu-bind 0-9: CPU 8 may not be used; those of this process are 0-7"},
      {{.num_ranks = 2, .cpu_bind = "0-1|1"}, "--cpu-bind 0-1|1: CPU 1 is named twice"},
      {{.num_ranks = 2, .cpu_bind = "0|"}, "--cpu-bind 0|: a rank has no CPU"},
      {{.cpu_bind = "x"},
       "--cpu-bind x: \"x\" is no list of CPUs; write numbers and ranges, such as 0-3,8"},
  };
  for (const auto& each : cases) {
    const auto placement = place_teams(topology, each.options);
    ASSERT_FALSE(placement) << each.message;
    EXPECT_EQ(placement.error().message, each.message);
  }
}

}  // namespace
}  // namespace tw
