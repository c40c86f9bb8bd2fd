#include "nn/plan.h"

#include <gtest/gtest.h>

#include <functional>

namespace tw {
namespace {

class FunctionStep final : public Step {
 public:
  explicit FunctionStep(std::function<void(const StepContext&)> body) : body_(std::move(body)) {}
  std::string_view name() const override { return "function"; }
  void run(const StepContext& context) const override { body_(context); }
  StepCost cost(const Batch&) const override { return {8, 2}; }

 private:
  std::function<void(const StepContext&)> body_;
};

std::unique_ptr<Step> nothing() {
  return std::make_unique<FunctionStep>([](const StepContext&) {});
}

struct PlanFixture : ::testing::Test {
  PlanRecorder recorder{64};
  ValueId a = recorder.add_value(RowKind::tokens, 8);
  ValueId b = recorder.add_value(RowKind::tokens, 8);
  ValueId c = recorder.add_value(RowKind::tokens, 8);

  int64_t barriers() { return recorder.finish()->num_barriers(); }
};

TEST_F(PlanFixture, ARowWiseChainNeedsNoBarrier) {
  recorder.add(nothing(), {}, {{a, Split::rows}});
  recorder.add(nothing(), {{a, Split::rows}}, {{b, Split::rows}});
  recorder.add(nothing(), {{b, Split::rows}}, {{a, Split::rows}});
  EXPECT_EQ(barriers(), 0);
}

TEST_F(PlanFixture, ReadingWhatOthersWroteNeedsOne) {
  recorder.add(nothing(), {}, {{a, Split::rows}});
  recorder.add(nothing(), {{a, Split::other}}, {{b, Split::other}});
  recorder.add(nothing(), {{b, Split::rows}}, {{c, Split::rows}});
  EXPECT_EQ(barriers(), 2);
}

TEST_F(PlanFixture, CostsWhatItsStepsDo) {
  for (int i = 0; i < 3; ++i) recorder.add(nothing(), {}, {{a, Split::rows}});
  const StepCost cost = recorder.finish()->cost(Batch{});
  EXPECT_EQ(cost.bytes, 24);
  EXPECT_EQ(cost.operations, 6);
}

TEST_F(PlanFixture, IndependentStepsShareABarrier) {
  recorder.add(nothing(), {}, {{a, Split::rows}});
  recorder.add(nothing(), {{a, Split::other}}, {{b, Split::other}});
  recorder.add(nothing(), {{a, Split::other}}, {{c, Split::other}});
  EXPECT_EQ(barriers(), 1);
}

TEST_F(PlanFixture, OverwritingWhatOthersStillReadNeedsOne) {
  recorder.add(nothing(), {}, {{a, Split::rows}});
  recorder.add(nothing(), {{a, Split::other}}, {{b, Split::other}});
  // Row-wise: but another member may still be reading the row.
  recorder.add(nothing(), {}, {{a, Split::rows}});
  EXPECT_EQ(barriers(), 2);
}

TEST_F(PlanFixture, VersionsCountWrites) {
  EXPECT_EQ(recorder.version(a), 0);
  recorder.add(nothing(), {{b, Split::rows}}, {{a, Split::rows}});
  recorder.add(nothing(), {{b, Split::rows}}, {{a, Split::other}});
  EXPECT_EQ(recorder.version(a), 2);
  EXPECT_EQ(recorder.version(b), 0);
}

TEST(Plan, ReplaysInOrderOnEveryMemberAndTimes) {
  PlanRecorder recorder(4);
  const ValueId a = recorder.add_value(RowKind::tokens, 2);
  const ValueId sums = recorder.add_value(RowKind::logits, 1);
  const size_t a_offset = recorder.offset(a), sums_offset = recorder.offset(sums);
  recorder.add(std::make_unique<FunctionStep>([=](const StepContext& context) {
                 auto* values = reinterpret_cast<float*>(context.arena + a_offset);
                 const Range rows = context.member.share(context.batch.num_tokens());
                 for (int64_t row = rows.begin; row < rows.end; ++row) {
                   values[2 * row] = static_cast<float>(row);
                   values[2 * row + 1] = 1.0f;
                 }
               }),
               {}, {{a, Split::rows}});
  recorder.add(std::make_unique<FunctionStep>([=](const StepContext& context) {
                 if (context.member.rank() != 0) return;
                 const auto* values = reinterpret_cast<const float*>(context.arena + a_offset);
                 float sum = 0;
                 for (int i = 0; i < 2 * context.batch.num_tokens(); ++i) sum += values[i];
                 *reinterpret_cast<float*>(context.arena + sums_offset) = sum;
               }),
               {{a, Split::other}}, {{sums, Split::other}});
  auto plan = recorder.finish();
  ASSERT_TRUE(plan);
  const int32_t tokens[4] = {};
  const int32_t lens[1] = {4};
  const int32_t logits[1] = {3};
  Batch batch;
  batch.token_ids = tokens;
  batch.context_lens = lens;
  batch.logit_tokens = logits;
  for (int threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    plan->run(batch, team);
    EXPECT_EQ(plan->view(sums, 1).row(0)[0], 0 + 1 + 2 + 3 + 4.0f);
    StepTrace trace(threads, 3);
    for (int replay = 0; replay < 2; ++replay) plan->run(batch, team, &trace);
    ASSERT_EQ(trace.totals().size(), 1u);
    EXPECT_EQ(trace.totals()[0].calls, 4);
    EXPECT_EQ(trace.totals()[0].cost.bytes, 32);
    EXPECT_GE(trace.totals()[0].seconds, trace.totals()[0].wait_seconds);
    EXPECT_EQ(trace.num_dropped(), threads);
    for (int rank = 0; rank < threads; ++rank) {
      ASSERT_EQ(trace.events(rank).size(), 3u);
      int64_t last_ns = 0;
      for (const StepEvent& event : trace.events(rank)) {
        EXPECT_LE(last_ns, event.arrival_ns);
        EXPECT_LE(event.arrival_ns, event.begin_ns);
        EXPECT_LE(event.begin_ns, event.end_ns);
        last_ns = event.end_ns;
      }
    }
  }
}

}  // namespace
}  // namespace tw
