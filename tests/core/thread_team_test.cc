#include "core/thread_team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace tw {
namespace {

TEST(Partition, CoversEverythingOnceInMultiples) {
  for (int64_t total : {0, 1, 7, 16, 100, 1001}) {
    for (int size : {1, 2, 3, 5, 7}) {
      for (int64_t granularity : {1, 4, 16}) {
        int64_t next = 0;
        for (int rank = 0; rank < size; ++rank) {
          const Range range = partition(total, rank, size, granularity);
          EXPECT_EQ(range.begin, next);
          EXPECT_LE(range.begin, range.end);
          if (range.end < total) {
            EXPECT_EQ(range.end % granularity, 0);
          }
          next = range.end;
        }
        EXPECT_EQ(next, total);
      }
    }
  }
}

class ThreadTeamSizes : public ::testing::TestWithParam<int> {};

TEST_P(ThreadTeamSizes, EveryMemberRunsOnceAndBarriersOrder) {
  ThreadTeam team(GetParam());
  constexpr int kRounds = 200;
  constexpr int kPhases = 8;
  std::vector<int> data(static_cast<size_t>(team.size()), 0);
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> failures{0};
    team.run([&](const TeamMember& member) {
      for (int phase = 0; phase < kPhases; ++phase) {
        // Each member writes its own cell, then reads all others' after the barrier.
        data[static_cast<size_t>(member.rank())] = round * kPhases + phase;
        member.barrier();
        for (int value : data) failures += value != round * kPhases + phase;
        member.barrier();
      }
    });
    ASSERT_EQ(failures.load(), 0);
  }
}

TEST_P(ThreadTeamSizes, WakesAfterSleeping) {
  ThreadTeam team(GetParam());
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    std::atomic<int> count{0};
    team.run([&](const TeamMember&) { ++count; });
    EXPECT_EQ(count.load(), team.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamSizes, ::testing::Values(1, 2, 3, 5, 7));

TEST(UsableCpus, AtLeastOneAndWithinTheQuota) {
  EXPECT_GE(usable_cpus().size(), 1u);
  EXPECT_GE(usable_cpu_count(), 1);
  EXPECT_LE(usable_cpu_count(), static_cast<int>(usable_cpus().size()));
}

}  // namespace
}  // namespace tw
