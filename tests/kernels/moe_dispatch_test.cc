#include "kernels/moe/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/buffer.h"

namespace tw::kernels {
namespace {

constexpr int32_t kExperts = 12, kTopK = 4, kGroups = 3;
constexpr int64_t kTokens = 200;

// Expert e lies in group e % 3, experts 0 to 5 in all others too.
ExpertDispatch dispatch_of(int32_t group) {
  std::vector<std::vector<int32_t>> slots(kGroups);
  for (int32_t e = 0; e < kExperts; ++e) slots[static_cast<size_t>(e % kGroups)].push_back(e);
  for (int32_t e = 0; e < 6; ++e) {
    for (int32_t g = 0; g < kGroups; ++g) {
      if (g != e % kGroups) slots[static_cast<size_t>(g)].push_back(e);
    }
  }
  return make_dispatch(kExperts, slots, group);
}

struct Choices {
  std::vector<int32_t> experts;
  std::vector<float> weights;

  Choices() {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform;
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<int32_t> all(kExperts);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random);
      experts.insert(experts.end(), all.begin(), all.begin() + kTopK);
    }
    for (size_t i = 0; i < experts.size(); ++i) weights.push_back(uniform(random));
  }

  // What is left of [begin, begin + count) for a group.
  std::vector<int32_t> kept(int32_t group, int64_t begin, int64_t count) const {
    Choices copy = *this;
    Routing routing;
    routing.top_k = kTopK;
    routing.experts = copy.experts.data() + begin * kTopK;
    routing.weights = copy.weights.data() + begin * kTopK;
    keep_own_choices(dispatch_of(group), routing, {0, count});
    return {routing.experts, routing.experts + count * kTopK};
  }
};

TEST(ExpertDispatchTest, EveryChoiceIsKeptByOneGroupThatHoldsTheExpert) {
  const Choices choices;
  std::vector<int> keepers(choices.experts.size(), 0);
  for (int32_t g = 0; g < kGroups; ++g) {
    const ExpertDispatch dispatch = dispatch_of(g);
    const std::vector<int32_t> kept = choices.kept(g, 0, kTokens);
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i] == kElsewhere) continue;
      ++keepers[i];
      const auto e = static_cast<size_t>(choices.experts[i]);
      const auto begin = dispatch.holders.begin() + dispatch.starts[e];
      const auto end = dispatch.holders.begin() + dispatch.starts[e + 1];
      EXPECT_TRUE(std::any_of(begin, end,
                              [&](const auto& h) { return h.group == g && h.slot == kept[i]; }));
    }
  }
  EXPECT_TRUE(std::ranges::all_of(keepers, [](int count) { return count == 1; }));
}

// Rows do not depend on their company: not even on which of the holders computes them.
TEST(ExpertDispatchTest, ATokensHoldersDependOnItAlone) {
  const Choices choices;
  for (int32_t g = 0; g < kGroups; ++g) {
    const std::vector<int32_t> all = choices.kept(g, 0, kTokens);
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::vector<int32_t> alone = choices.kept(g, t, 1);
      EXPECT_TRUE(
          std::ranges::equal(alone, std::span(all).subspan(static_cast<size_t>(t * kTopK), kTopK)));
    }
  }
}

TEST(ExpertDispatchTest, CopiesShareTheWork) {
  const Choices choices;
  std::vector<int64_t> of_group;
  std::vector<int64_t> of_expert_0(kGroups, 0);
  for (int32_t g = 0; g < kGroups; ++g) {
    const std::vector<int32_t> kept = choices.kept(g, 0, kTokens);
    of_group.push_back(
        std::ranges::count_if(kept, [](int32_t slot) { return slot != kElsewhere; }));
    for (size_t i = 0; i < kept.size(); ++i) {
      if (choices.experts[i] == 0 && kept[i] != kElsewhere) ++of_expert_0[static_cast<size_t>(g)];
    }
  }
  // Four choices of three groups: two for one of them and one for each other, nearly always.
  for (const int64_t count : of_group) EXPECT_NEAR(static_cast<double>(count), 800 / 3.0, 40);
  for (const int64_t count : of_expert_0) EXPECT_GT(count, 5);
}

TEST(ExpertDispatchTest, WhatIsElsewhereGetsNoRow) {
  const RoutingLimits limits{3, 2, 2, 2};
  auto memory = Buffer::allocate(routing_size(limits));
  ASSERT_TRUE(memory);
  const Routing routing = layout_routing(limits, memory->data());
  const int32_t experts[] = {1, kElsewhere, kElsewhere, kElsewhere, 0, 1};
  std::ranges::copy(experts, routing.experts);
  std::fill_n(routing.weights, 6, 0.5f);
  for (int rank = 0; rank < 2; ++rank) count_choices(routing, rank, partition(3, rank, 2));
  for (int rank = 0; rank < 2; ++rank) place_choices(routing, rank, 2, partition(3, rank, 2));
  EXPECT_EQ((std::vector<int32_t>(routing.rows, routing.rows + 6)),
            (std::vector<int32_t>{1, kElsewhere, kElsewhere, kElsewhere, 0, 2}));
  EXPECT_EQ((std::vector<int32_t>(routing.starts, routing.starts + 3)),
            (std::vector<int32_t>{0, 1, 3}));
}

}  // namespace
}  // namespace tw::kernels
