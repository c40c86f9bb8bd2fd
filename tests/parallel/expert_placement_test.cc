#include "parallel/expert_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace tw {
namespace {

// Every expert somewhere, every slot used, no group with an expert twice.
void expect_complete(const ExpertPlacement& placement, const ExpertSlots& slots) {
  ASSERT_EQ(placement.num_experts, slots.num_experts);
  ASSERT_EQ(placement.num_groups(), slots.num_groups);
  std::set<int32_t> seen;
  for (const auto& group : placement.slots) {
    ASSERT_EQ(std::ssize(group), slots.per_group());
    ASSERT_EQ(std::set<int32_t>(group.begin(), group.end()).size(), group.size());
    seen.insert(group.begin(), group.end());
  }
  ASSERT_EQ(std::ssize(seen), slots.num_experts);
  ASSERT_GE(*seen.begin(), 0);
  ASSERT_LT(*seen.rbegin(), slots.num_experts);
}

// Expert e of a random order is chosen in proportion to 1 / rank^s.
std::vector<int64_t> zipf(int32_t num_experts, double s, std::mt19937& random) {
  std::vector<int64_t> work;
  for (int32_t rank = 1; rank <= num_experts; ++rank) {
    work.push_back(static_cast<int64_t>(1e6 / std::pow(rank, s)));
  }
  std::shuffle(work.begin(), work.end(), random);
  return work;
}

TEST(ExpertPlacementTest, IsCompleteForAnyNumbers) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto num_groups = static_cast<int>(1 + random() % 9);
    const auto num_experts = static_cast<int32_t>(num_groups + random() % 40);
    const ExpertSlots slots{num_experts, num_groups, static_cast<int32_t>(random() % 50)};
    const std::vector<int64_t> work =
        zipf(num_experts, 0.5 * static_cast<double>(random() % 5), random);
    const ExpertPlacement first = place_experts(slots, work);
    expect_complete(first, slots);
    if (::testing::Test::HasFatalFailure()) FAIL() << num_experts << " in " << num_groups;
    const std::vector<int64_t> other = zipf(num_experts, 1, random);
    const ExpertPlacement moved = move_experts(first, slots, other);
    expect_complete(moved, slots);
    if (::testing::Test::HasFatalFailure()) FAIL() << num_experts << " in " << num_groups;
    // Groups and slots by other names.
    EXPECT_NEAR(moved.imbalance(other), place_experts(slots, other).imbalance(other), 1e-9);
  }
}

TEST(ExpertPlacementTest, WithoutKnowledgeNeighboursAreApart) {
  const ExpertPlacement placement = place_experts({8, 2, 0}, {});
  EXPECT_EQ(placement.slots, (std::vector<std::vector<int32_t>>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  const std::vector<int64_t> even(8, 10);
  EXPECT_DOUBLE_EQ(placement.imbalance(even), 1.0);
}

TEST(ExpertPlacementTest, BusyExpertsAreSpreadAndCopied) {
  // One expert has half of all choices: without a copy, its group has at least that.
  const std::vector<int64_t> work = {70, 10, 10, 10, 10, 10, 10, 10};
  EXPECT_GE(place_experts({8, 4, 0}, work).imbalance(work), 2.0);
  const ExpertPlacement copied = place_experts({8, 4, 4}, work);
  const auto copies = std::ranges::count_if(
      copied.slots, [](const auto& group) { return std::ranges::count(group, 0) == 1; });
  EXPECT_EQ(copies, 4);
  EXPECT_NEAR(copied.imbalance(work), 37.5 / 35, 1e-9);
}

TEST(ExpertPlacementTest, ASkewedTraceIsBalanced) {
  std::mt19937 random(3);
  const ExpertSlots slots{64, 4, 8};
  for (int round = 0; round < 20; ++round) {
    const std::vector<int64_t> work = zipf(64, 1.0, random);
    const double before = place_experts({64, 4, 0}, {}).imbalance(work);
    EXPECT_GT(before, 1.05);
    EXPECT_LT(place_experts(slots, work).imbalance(work), 1.02);
  }
}

TEST(ExpertPlacementTest, MovesNoMoreThanItMust) {
  std::mt19937 random(5);
  const ExpertSlots slots{32, 4, 4};
  const std::vector<int64_t> work = zipf(32, 1, random);
  const ExpertPlacement first = place_experts(slots, work);
  EXPECT_EQ(move_experts(first, slots, work), first);
  // The same groups in another order are the same groups.
  ExpertPlacement turned = first;
  std::ranges::rotate(turned.slots, turned.slots.begin() + 1);
  EXPECT_EQ(move_experts(turned, slots, work), turned);
}

TEST(ExpertPlacementTest, NothingChosenIsEven) {
  const std::vector<int64_t> none(8, 0);
  EXPECT_EQ(place_experts({8, 2, 0}, none).imbalance(none), 1);
}

}  // namespace
}  // namespace tw
