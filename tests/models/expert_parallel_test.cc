// Groups of ranks that hold different experts whole compute what one rank does, wherever the
// experts lie, and while they move. Tolerance: as for tensor parallelism (tensor_parallel_test.cc).
#include <gtest/gtest.h>

#include "models/forward_runner.h"
#include "models/logit_error.h"
#include "models/parallel_model.h"
#include "models/real_model.h"
#include "models/test_name.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using testing_support::ForwardRunner;
using testing_support::greedy;
using testing_support::largest_magnitude;
using testing_support::logit_error;
using testing_support::Parallel;
using testing_support::some_tokens;
using testing_support::test_model;

struct Layout {
  int num_ranks;
  ExpertSharding experts;
};

std::vector<float> logits_of(Model& model) {
  return ForwardRunner(model, 64, 32).run(some_tokens(60));
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_LT(logit_error(actual, expected, largest_magnitude(expected)).relative, 1e-3);
}

// Routers of all kinds, biases, shared experts, and experts quantized in several ways.
const char* const kMixtures[] = {"tiny-mixtral",      "tiny-qwen2-moe", "tiny-qwen3-moe.gguf",
                                 "tiny-deepseek-v3",  "tiny-glm4-moe",  "tiny-gpt-oss",
                                 "tiny-gpt-oss-mxfp4"};

class ExpertParallelModels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(test_model(GetParam()))) return;
    GTEST_SKIP() << "no models; run tools/proxy/make_proxy.py --tests";
  }
};

TEST_P(ExpertParallelModels, GroupsComputeWhatOneRankDoes) {
  const Parallel one(test_model(GetParam()), 1);
  ASSERT_TRUE(one.model) << one.model.error().message;
  const std::vector<float> expected = logits_of(**one.model);
  // Whole experts, whole ones with copies, uneven groups, and parts of experts.
  for (const Layout& layout :
       {Layout{2, {2, 0}}, Layout{2, {2, 2}}, Layout{3, {3, 0}}, Layout{4, {2, 1}}}) {
    const Parallel several(test_model(GetParam()), layout.num_ranks, ActivationPrecision::f32,
                           layout.experts);
    ASSERT_TRUE(several.model) << several.model.error().message;
    SCOPED_TRACE(layout.num_ranks);
    expect_near(logits_of(**several.model), expected);
  }
}

TEST_P(ExpertParallelModels, ExpertsMayMove) {
  const Parallel parallel(test_model(GetParam()), 4, ActivationPrecision::f32, {2, 1});
  ASSERT_TRUE(parallel.model) << parallel.model.error().message;
  Model& model = **parallel.model;
  ForwardRunner runner(model, 64, 32);
  const std::vector<float> before = runner.run(some_tokens(60));
  const auto layers = model.expert_layers();
  ASSERT_FALSE(layers.empty());
  for (size_t i = 0; i < layers.size(); ++i) {
    // The last experts are the busiest, now.
    std::vector<int64_t> work;
    for (int32_t e = 0; e < layers[i]->slots().num_experts; ++e) work.push_back(int64_t{e} * e * e);
    const ExpertPlacement next = move_experts(layers[i]->placement(), layers[i]->slots(), work);
    ASSERT_NE(next, layers[i]->placement());
    const Status moved = model.place_experts(i, next);
    ASSERT_TRUE(moved) << moved.error().message;
    EXPECT_EQ(layers[i]->placement(), next);
  }
  expect_near(runner.run(some_tokens(60)), before);
}

INSTANTIATE_TEST_SUITE_P(Mixtures, ExpertParallelModels, ::testing::ValuesIn(kMixtures),
                         testing_support::NamedByParameter());

TEST(ExpertChoicesTest, CountEveryChoiceOfEveryToken) {
  if (!std::filesystem::exists(test_model("tiny-mixtral"))) GTEST_SKIP();
  for (const Layout& layout : {Layout{1, {}}, Layout{2, {2, 0}}}) {
    const Parallel parallel(test_model("tiny-mixtral"), layout.num_ranks, ActivationPrecision::f32,
                            layout.experts);
    ASSERT_TRUE(parallel.model) << parallel.model.error().message;
    logits_of(**parallel.model);
    for (const ExpertLayer* layer : (*parallel.model)->expert_layers()) {
      int64_t sum = 0;
      for (const int64_t count : layer->choices()) sum += count;
      EXPECT_EQ(sum, 60 * 2) << layer->name();
    }
  }
}

// A text is the same while its experts are moved under it, and they do move.
TEST(ExpertBalancing, MovesExpertsAndChangesNothing) {
  const std::filesystem::path path = test_model("tiny-qwen3-moe");
  if (!std::filesystem::exists(path)) GTEST_SKIP();
  const std::vector<std::vector<TokenId>> prompts = {some_tokens(5), some_tokens(70)};
  const auto texts = [&](const Layout& layout, bool moves, EngineStats& stats) {
    Parallel parallel(path, layout.num_ranks, ActivationPrecision::f32, layout.experts);
    EXPECT_TRUE(parallel.model) << (parallel.model ? "" : parallel.model.error().message);
    EngineConfig config;
    config.max_total_tokens = 1024;
    config.enable_eplb = moves;
    config.eplb_rebalance_num_iterations = 2;
    auto engine = Engine::create(std::move(*parallel.model), config);
    EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
    auto result = greedy(**engine, prompts, 24);
    stats = (*engine)->stats();
    return result;
  };
  EngineStats still, moving;
  const auto expected = texts({1, {}}, false, still);
  EXPECT_EQ(still.expert_moves_total, 0);
  EXPECT_EQ(texts({2, {2, 1}}, true, moving), expected);
  EXPECT_GT(moving.expert_moves_total, 0);
  EXPECT_GE(moving.expert_imbalance, 1);
  EXPECT_LE(moving.expert_imbalance, 2);
}

std::string refusal(const char* name, int num_ranks, const ExpertSharding& experts) {
  const Parallel parallel(test_model(name), num_ranks, ActivationPrecision::f32, experts);
  return parallel.model ? "" : parallel.model.error().message;
}

TEST(ExpertParallelRefusals, NameTheReason) {
  if (!std::filesystem::exists(test_model("tiny-mixtral"))) GTEST_SKIP();
  EXPECT_NE(refusal("tiny-mixtral", 3, {2, 0}).find("--ep 2: the 3 ranks"), std::string::npos);
  EXPECT_NE(refusal("tiny-llama3", 2, {2, 0}).find("no experts"), std::string::npos);
  EXPECT_NE(refusal("tiny-mixtral", 16, {16, 0}).find("too few for --ep 16"), std::string::npos);
  const ExpertChoices choices = {{"model.layers.0.mlp", {1, 2, 3}},
                                 {"model.layers.0.block_sparse_moe", {1, 2, 3}}};
  EXPECT_NE(refusal("tiny-mixtral", 2, {2, 0, &choices}).find("has 3 experts there"),
            std::string::npos);
}

// What is known of the experts places them.
TEST(ExpertParallelPlaces, FollowWhatIsExpected) {
  if (!std::filesystem::exists(test_model("tiny-mixtral"))) GTEST_SKIP();
  const Parallel plain(test_model("tiny-mixtral"), 2, ActivationPrecision::f32, {2, 0});
  ASSERT_TRUE(plain.model) << plain.model.error().message;
  const ExpertLayer& layer = *(*plain.model)->expert_layers().front();
  const auto num_experts = static_cast<size_t>(layer.slots().num_experts);
  std::vector<int64_t> work(num_experts, 1);
  work[0] = work[2] = 100;
  EXPECT_GT(layer.placement().imbalance(work), 1.5);  // 0 and 2 lie together
  const ExpertChoices expected = {{layer.name(), work}};
  const Parallel placed(test_model("tiny-mixtral"), 2, ActivationPrecision::f32, {2, 0, &expected});
  ASSERT_TRUE(placed.model) << placed.model.error().message;
  EXPECT_LT((*placed.model)->expert_layers().front()->placement().imbalance(work), 1.1);
}

}  // namespace
}  // namespace tw
