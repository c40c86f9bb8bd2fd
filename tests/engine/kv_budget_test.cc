#include "engine/kv_budget.h"

#include <gtest/gtest.h>

namespace tw {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

KvBudgetInput machine() {
  KvBudgetInput input;
  input.memory.total = 16 * kGiB;
  input.memory.available = 12 * kGiB;
  input.resident_bytes = 4 * kGiB;
  input.kv_bytes_per_token = 64 << 10;
  input.context_length = 1 << 20;
  return input;
}

TEST(KvPages, AreWhatTheFractionLeavesBesideTheWeights) {
  EngineConfig config;
  config.mem_fraction_static = 0.5;  // 8 GiB, of which 4 are taken
  const auto pages = kv_pages(config, machine());
  ASSERT_TRUE(pages);
  EXPECT_EQ(*pages, 4 * kGiB / (64 << 10) / config.page_size);
}

TEST(KvPages, AreWhatIsLeftBesideRecurrentStates) {
  EngineConfig config;
  config.mem_fraction_static = 0.5;
  KvBudgetInput input = machine();
  input.state_bytes = kGiB;
  EXPECT_EQ(kv_pages(config, input).value(), 3 * kGiB / (64 << 10) / config.page_size);
  input.state_bytes = 13 * kGiB;
  const auto pages = kv_pages(config, input);
  ASSERT_FALSE(pages);
  EXPECT_NE(pages.error().message.find("--max-running-requests 64 needs 13.00 GiB"),
            std::string::npos)
      << pages.error().message;
}

TEST(KvPages, NeverMoreThanIsFree) {
  EngineConfig config;
  config.mem_fraction_static = 0.9;
  KvBudgetInput input = machine();
  input.memory.available = kGiB;
  const auto pages = kv_pages(config, input);
  ASSERT_TRUE(pages);
  EXPECT_EQ(*pages, kGiB / (64 << 10) / config.page_size);
}

TEST(KvPages, NoMoreThanTheRunningRequestsCanUse) {
  EngineConfig config;
  config.max_running_requests = 2;
  KvBudgetInput input = machine();
  input.context_length = 100;
  EXPECT_EQ(kv_pages(config, input).value(), 2 * 7);  // 7 pages of 16 hold 100 tokens
}

TEST(KvPages, AsGivenRoundedUpToPages) {
  EngineConfig config;
  config.max_total_tokens = 100;
  EXPECT_EQ(kv_pages(config, machine()).value(), 7);
}

TEST(KvPages, TooMuchOrTooLittleSaysWhatIsNeeded) {
  EngineConfig config;
  config.max_total_tokens = 1 << 20;  // 64 GiB
  auto pages = kv_pages(config, machine());
  ASSERT_FALSE(pages);
  EXPECT_EQ(pages.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(pages.error().message.find("--max-total-tokens 1048576 needs 64.00 GiB"),
            std::string::npos)
      << pages.error().message;

  config = {};
  config.mem_fraction_static = 0.2;  // 3.2 GiB: less than the weights
  pages = kv_pages(config, machine());
  ASSERT_FALSE(pages);
  EXPECT_NE(pages.error().message.find("--mem-fraction-static"), std::string::npos);
  EXPECT_NE(pages.error().message.find("take 4.00 GiB"), std::string::npos)
      << pages.error().message;
}

}  // namespace
}  // namespace tw
