// The layer that guesses a token further, against one put together of Transformers' modules
// (tools/golden/make_next_token_golden.py), and what it may do to an engine's output: nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/changed_checkpoint.h"
#include "models/golden_file.h"
#include "models/next_token_reference.h"
#include "models/real_model.h"
#include "models/tensor_parallel.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using testing_support::ChangedCheckpoint;
using testing_support::expect_equals_reference;
using testing_support::GoldenFile;
using testing_support::greedy;

class NextToken : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto path = std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / GetParam();
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is missing; run tools/proxy/make_proxy.py --tests";
    }
    auto opened = Checkpoint::open(path);
    ASSERT_TRUE(opened) << opened.error().message;
    checkpoint_ = std::move(*opened);
  }

  Expected<std::unique_ptr<Model>> load(const Checkpoint& checkpoint, int num_ranks,
                                        ActivationPrecision precision,
                                        bool next_token_layer = true) {
    teams_ = std::make_unique<TeamGroup>(std::vector<int>(static_cast<size_t>(num_ranks), 1));
    WeightLoader loader(checkpoint, teams_->team(0), {*usable_cpu_features(), precision});
    loader.next_token_layer = next_token_layer;
    return load_model(loader, *teams_);
  }

  std::unique_ptr<TeamGroup> teams_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_P(NextToken, LogitsAndStatesEqualTheReferenceByOneAndSeveralRanks) {
  const GoldenFile golden("next-token-" + GetParam());
  ASSERT_TRUE(golden.is_open());
  for (const int num_ranks : {1, 2}) {
    for (const auto precision : {ActivationPrecision::bf16, ActivationPrecision::f32}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", num_ranks,
                               precision == ActivationPrecision::bf16 ? "bf16" : "f32"));
      auto model = load(*checkpoint_, num_ranks, precision);
      ASSERT_TRUE(model) << model.error().message;
      expect_equals_reference(**model, golden, precision);
    }
  }
}

TEST_P(NextToken, GuessesChangeNothing) {
  const std::vector<std::vector<TokenId>> prompts = {{5, 6, 7}, std::vector<TokenId>(40, 9), {8}};
  const auto run = [&](const char* algorithm, int num_ranks) {
    auto model = load(*checkpoint_, num_ranks, ActivationPrecision::bf16, *algorithm != 0);
    EXPECT_TRUE(model);
    EngineConfig config;
    config.max_total_tokens = 1024;
    config.chunked_prefill_size = 16;
    config.speculative_algorithm = algorithm;
    config.speculative_num_steps = *algorithm != 0 ? 3 : 0;
    auto engine = Engine::create(std::move(*model), config);
    EXPECT_TRUE(engine) << engine.error().message;
    auto outputs = greedy(**engine, prompts, 24);
    EXPECT_EQ((*engine)->stats().draft_tokens_total > 0, *algorithm != 0);
    return outputs;
  };
  EXPECT_EQ(run("NEXTN", 1), run("", 1));
  EXPECT_EQ(run("NEXTN", 2), run("", 2));
}

TEST_P(NextToken, AMissingLayerOrTensorIsNamed) {
  Json config = checkpoint_->config();
  config["num_nextn_predict_layers"] = 0;
  const ChangedCheckpoint without(*checkpoint_, config);
  auto refused = load(without, 1, ActivationPrecision::bf16);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no layer that guesses a token further"),
            std::string::npos);

  const ChangedCheckpoint renamed(*checkpoint_, checkpoint_->config(), [](std::string name) {
    const size_t found = name.find("eh_proj");
    return found == std::string::npos ? name : name.replace(found, 7, "other");
  });
  refused = load(renamed, 1, ActivationPrecision::bf16);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("eh_proj"), std::string::npos);

  auto plain = load(without, 1, ActivationPrecision::bf16, false);
  ASSERT_TRUE(plain);
  EXPECT_EQ((*plain)->next_token_model(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Models, NextToken,
                         ::testing::Values("tiny-deepseek-v3-nextn", "tiny-glm4-moe-nextn"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tw
