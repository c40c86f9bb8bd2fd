#include "engine/profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/json.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

// Two threads; the second waits for the first.
EngineProfile example() {
  EngineProfile profile(2, 0);
  profile.add({.begin_ns = 0,
               .scheduled_ns = 1000,
               .forwarded_ns = 9000,
               .end_ns = 10000,
               .num_tokens = 7,
               .num_seqs = 2});
  profile.model_steps().record(0, {.name = "qkv",
                                   .arrival_ns = 1000,
                                   .begin_ns = 1000,
                                   .end_ns = 5000,
                                   .cost = {.bytes = 8000, .operations = 16000}});
  profile.model_steps().record(
      1, {.name = "attention", .arrival_ns = 2000, .begin_ns = 5000, .end_ns = 9000});
  return profile;
}

const Json* find_event(const Json& trace, std::string_view name) {
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == name) return &event;
  }
  return nullptr;
}

TEST(EngineProfile, TheTraceHasATrackPerThreadAndTheRatesOfSteps) {
  const std::string path = ::testing::TempDir() + "/tw_profile_test.json";
  ASSERT_TRUE(example().write_trace(path));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto trace = parse_json(text, "trace");
  ASSERT_TRUE(trace) << trace.error().message;
  const Json* qkv = find_event(*trace, "qkv");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ((*qkv)["ph"], "X");
  EXPECT_EQ((*qkv)["ts"], 1.0);
  EXPECT_EQ((*qkv)["dur"], 4.0);
  EXPECT_EQ((*qkv)["args"]["GB/s"], 2.0);
  EXPECT_EQ((*qkv)["args"]["GOP/s"], 4.0);
  const Json* wait = find_event(*trace, "wait");
  const Json* attention = find_event(*trace, "attention");
  ASSERT_TRUE(wait != nullptr && attention != nullptr);
  EXPECT_EQ((*wait)["dur"], 3.0);
  EXPECT_EQ((*wait)["tid"], (*attention)["tid"]);
  EXPECT_NE((*qkv)["tid"], (*attention)["tid"]);
  EXPECT_EQ((*find_event(*trace, "forward"))["args"]["tokens"], 7);
  fs::remove(path);
}

TEST(EngineProfile, TheSummarySaysWhereTheTimeGoes) {
  const std::string summary = example().summary();
  EXPECT_NE(summary.find("schedule 10.0%, forward 80.0%, sample 10.0%"), std::string::npos)
      << summary;
  EXPECT_NE(summary.find("qkv"), std::string::npos);
  EXPECT_EQ(summary.find("at most"), std::string::npos);
}

TEST(EngineProfile, TheSummaryComparesWithTheMachine) {
  RankLimits rank;
  rank.limits.read_bandwidth = 25e9;
  rank.limits.dpbusd_avx512 = 3e12;
  rank.limits.fma_avx2 = 1e12;
  const RankLimits ranks[] = {rank, rank};
  const std::string summary = example().summary(ranks);
  for (const char* line : {"rank 0, at most: 25.00 GB/s, 3000.0 GOP/s", "rank 1, at most: 25.00"}) {
    EXPECT_NE(summary.find(line), std::string::npos) << summary;
  }
}

TEST(EngineProfile, ATraceThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  const auto status = example().write_trace("/nonexistent/folder/trace.json");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("/nonexistent/folder/trace.json"), std::string::npos);
}

}  // namespace
}  // namespace tw
