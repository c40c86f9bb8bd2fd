#include "router/policy.h"

#include <gtest/gtest.h>

#include <set>

namespace tw {
namespace {

class PolicyTest : public testing::Test {
 protected:
  PolicyTest() {
    for (int i = 0; i < 3; ++i) {
      workers_.push_back(std::make_shared<Worker>(*WorkerAddress::parse(fmt::format("node{}:1", i)),
                                                  HealthThresholds()));
    }
  }

  std::unique_ptr<Policy> make(const PolicyConfig& config) {
    auto policy = Policy::create(config);
    EXPECT_TRUE(policy);
    return std::move(*policy);
  }
  std::unique_ptr<Policy> make(const std::string& name) { return make(PolicyConfig{.name = name}); }

  // Requests that run on a worker until the test ends.
  void load(size_t worker, int count) {
    for (int i = 0; i < count; ++i) leases_.emplace_back(workers_[worker]);
  }

  std::vector<std::shared_ptr<Worker>> workers_;
  std::vector<Worker::Lease> leases_;
  const std::string one_ = std::string(300, 'a') + "?", two_ = std::string(300, 'b') + "?";
};

TEST_F(PolicyTest, UnknownOnesAreRefusedWithThoseThatAre) {
  const auto policy = Policy::create({.name = "sticky"});
  ASSERT_FALSE(policy);
  for (const std::string& name : Policy::names()) {
    EXPECT_NE(policy.error().message.find(name), std::string::npos) << policy.error().message;
  }
}

TEST_F(PolicyTest, RoundRobinTakesTurns) {
  const auto policy = make("round_robin");
  std::vector<size_t> chosen;
  for (int i = 0; i < 6; ++i) chosen.push_back(policy->choose(workers_, one_));
  EXPECT_EQ(chosen, (std::vector<size_t>{0, 1, 2, 0, 1, 2}));
}

TEST_F(PolicyTest, RandomTakesAll) {
  const auto policy = make("random");
  std::set<size_t> chosen;
  for (int i = 0; i < 200; ++i) chosen.insert(policy->choose(workers_, one_));
  EXPECT_EQ(chosen.size(), 3u);
}

TEST_F(PolicyTest, PowerOfTwoNeverTakesTheMostLoaded) {
  const auto policy = make("power_of_two");
  load(1, 5);
  for (int i = 0; i < 100; ++i) EXPECT_NE(policy->choose(workers_, one_), 1u);
  EXPECT_EQ(policy->choose(Policy::Candidates(workers_).first(1), one_), 0u);
}

TEST_F(PolicyTest, CacheAwareGoesWhereThePrefixIs) {
  const auto policy = make("cache_aware");
  const size_t first = policy->choose(workers_, one_);
  const size_t second = policy->choose(workers_, two_);
  EXPECT_NE(first, second);  // the other has been asked to hold less
  EXPECT_EQ(policy->choose(workers_, one_ + " go on"), first);
  EXPECT_EQ(policy->choose(workers_, two_ + " go on"), second);
  load(first, 3);  // a little uneven
  EXPECT_EQ(policy->choose(workers_, one_ + " and on"), first);
}

TEST_F(PolicyTest, CacheAwareNeedsAShareOfThePrompt) {
  const auto policy = make(PolicyConfig{.cache_threshold = 0.5});
  const size_t first = policy->choose(workers_, one_);
  load(first, 1);
  EXPECT_EQ(policy->choose(workers_, one_ + std::string(100, 'x')), first);
  EXPECT_NE(policy->choose(workers_, one_ + std::string(1000, 'y')), first);
}

TEST_F(PolicyTest, CacheAwareYieldsToUnevenLoad) {
  const auto policy = make(PolicyConfig{.balance_abs_threshold = 4, .balance_rel_threshold = 1.5});
  const size_t first = policy->choose(workers_, one_);
  load(first, 4);
  EXPECT_EQ(policy->choose(workers_, one_), first);
  load(first, 1);
  const size_t other = policy->choose(workers_, one_);
  EXPECT_NE(other, first);
  // By that the other has it too, and of two that have it the less loaded gets it.
  leases_.clear();
  load(first, 1);
  EXPECT_EQ(policy->choose(workers_, one_), other);
}

TEST_F(PolicyTest, CacheAwareForgetsWorkersThatLostTheirCache) {
  const auto policy = make("cache_aware");
  const size_t first = policy->choose(workers_, one_);
  policy->forget(workers_[first]->url());
  load(first, 1);
  EXPECT_NE(policy->choose(workers_, one_), first);
}

TEST_F(PolicyTest, RequestsWithoutAPromptGoToTheLeastLoaded) {
  const auto policy = make("cache_aware");
  load(0, 2);
  load(1, 1);
  EXPECT_EQ(policy->choose(workers_, ""), 2u);
}

}  // namespace
}  // namespace tw
