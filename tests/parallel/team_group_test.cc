#include "parallel/team_group.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "core/buffer.h"
#include "core/numa_memory.h"

namespace tw {
namespace {

TEST(TeamGroup, LeadersRunTheirTeams) {
  TeamGroup group(std::vector<int>{2, 1, 3});
  EXPECT_EQ(group.num_ranks(), 3);
  EXPECT_EQ(group.num_threads(), 6);
  std::atomic<int> members[3] = {0, 0, 0};
  for (int round = 0; round < 20; ++round) {
    group.run([&](int rank) {
      group.team(rank).run([&](const TeamMember& member) {
        EXPECT_EQ(member.size(), group.team(rank).size());
        ++members[rank];
      });
    });
  }
  EXPECT_EQ(members[0].load(), 40);
  EXPECT_EQ(members[1].load(), 20);
  EXPECT_EQ(members[2].load(), 60);
}

// Every member of every team runs where the placement put it, and what it touches first lies on the
// node of its rank: the system is asked page by page.
TEST(TeamGroup, MembersAreOnTheirCoresAndTheirMemoryOnTheirNodes) {
  const Topology topology = detect_topology();
  const auto cores = static_cast<int>(topology.cores().size());
  const int ranks = std::min(2, cores);
  const auto placement = place_teams(
      topology, {.num_ranks = ranks, .numa = fmt::format("{}x{}", ranks, cores / ranks)});
  ASSERT_TRUE(placement) << placement.error().message;
  // Rank 0's leader is pinned for good: not this test's thread.
  std::thread([&] {
    TeamGroup group(*placement);
    group.adopt_caller();
    group.run([&](int rank) {
      const TeamPlace& place = group.place(rank);
      auto memory = Buffer::allocate(size_t{5} << 20);
      ASSERT_TRUE(memory);
      group.team(rank).run([&](const TeamMember& member) {
        EXPECT_EQ(sched_getcpu(), place.cpus[static_cast<size_t>(member.rank())]);
        const Range bytes = member.share(static_cast<int64_t>(memory->size()), 4096);
        std::fill(memory->data() + bytes.begin, memory->data() + bytes.end, std::byte{1});
      });
      if (place.node < 0) return;  // a system without nodes
      const PagePlaces found = find_pages({memory->data(), memory->size()}, place.node);
      if (found.on_node + found.elsewhere == 0) return;  // the system tells nobody
      EXPECT_EQ(found.elsewhere, 0);
      EXPECT_EQ(found.untouched, 0);
      EXPECT_GT(found.on_node, 0);
      const PagePlaces wrong = find_pages({memory->data(), memory->size()}, place.node + 1);
      EXPECT_EQ(wrong.on_node, 0);
      EXPECT_EQ(wrong.elsewhere, found.on_node);
    });
  }).join();
}

TEST(NumaMemory, UntouchedPagesAreNowhere) {
  auto memory = Buffer::allocate(size_t{1} << 20);
  ASSERT_TRUE(memory);
  EXPECT_EQ(find_pages({}, 0).untouched, 0);
  const PagePlaces places = find_pages({memory->data(), memory->size()}, 0, 64);
  EXPECT_EQ(places.on_node + places.elsewhere, 0);
  EXPECT_GE(places.untouched, 64);
}

}  // namespace
}  // namespace tw
