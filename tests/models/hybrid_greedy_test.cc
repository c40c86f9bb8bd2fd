// Models with recurrent states under the engine: greedy output is that of the prompt alone,
// whatever the batch, the chunks, preemption, or what a cancelled request left in its slot.
#include <random>
#include <thread>

#include "models/real_model.h"

namespace tw {
namespace {

using testing_support::greedy;
using testing_support::LoadedModel;

constexpr int32_t kNewTokens = 20;

class HybridGreedy : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(path())) GTEST_SKIP() << path() << " is missing";
    std::mt19937 random(5);
    for (int i = 0; i < 12; ++i) {
      std::vector<TokenId> prompt;
      if (i % 3 == 0) prompt.assign(40, 17);  // what a prefix cache would share
      const size_t extra = 1 + random() % 50;
      for (size_t k = 0; k < extra; ++k) prompt.push_back(static_cast<TokenId>(random() % 270));
      prompts_.push_back(std::move(prompt));
    }
  }

  std::filesystem::path path() const {
    return std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / GetParam();
  }

  Expected<std::unique_ptr<Engine>> create(int threads, EngineConfig config) {
    loaded_.push_back(testing_support::load(path(), threads, kernels::ActivationPrecision::bf16));
    if (config.max_total_tokens == 0) config.max_total_tokens = 4096;
    return Engine::create(std::move(loaded_.back().model), config);
  }

  std::unique_ptr<Engine> serve(int threads, const EngineConfig& config) {
    auto engine = create(threads, config);
    EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
    return engine ? std::move(*engine) : nullptr;
  }

  // Every prompt alone.
  std::vector<std::vector<TokenId>> expected() {
    const auto engine = serve(1, {});
    std::vector<std::vector<TokenId>> outputs;
    for (const auto& prompt : prompts_) outputs.push_back(greedy(*engine, {prompt}, kNewTokens)[0]);
    return outputs;
  }

  std::vector<std::vector<TokenId>> prompts_;
  std::vector<LoadedModel> loaded_;  // teams outlive their engines
};

TEST_P(HybridGreedy, DoesNotDependOnCompanyChunksOrPreemption) {
  const auto alone = expected();
  {
    const auto engine = serve(2, {});
    EXPECT_EQ(greedy(*engine, prompts_, kNewTokens), alone);
    // Again: states can't be cut, so there are no shared prefixes.
    EXPECT_EQ(greedy(*engine, prompts_, kNewTokens), alone);
    EXPECT_EQ(engine->stats().cached_tokens_total, 0);
    EXPECT_TRUE(engine->config().disable_radix_cache);
  }
  {
    EngineConfig config;
    config.chunked_prefill_size = 7;
    config.max_running_requests = 5;
    const auto engine = serve(2, config);
    EXPECT_EQ(greedy(*engine, prompts_, kNewTokens), alone);
  }
  EngineConfig config;
  config.max_total_tokens = 256;
  const auto engine = serve(2, config);
  EXPECT_EQ(greedy(*engine, prompts_, kNewTokens), alone);
  EXPECT_GT(engine->stats().num_preemptions, 0);
}

TEST_P(HybridGreedy, CancelledRequestsLeaveNothingBehind) {
  const auto alone = expected();
  EngineConfig config;
  config.max_running_requests = 3;
  const auto engine = serve(2, config);
  for (int round = 0; round < 4; ++round) {
    std::vector<uint64_t> ids;
    for (const auto& prompt : prompts_) {
      Request request;
      request.prompt = prompt;
      request.sampling.max_new_tokens = 200;
      request.sampling.ignore_eos = true;
      request.sink = [](EngineOutput&&) {};
      ids.push_back(engine->submit(std::move(request)).value());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    for (const uint64_t id : ids) engine->abort(id);
    EXPECT_EQ(greedy(*engine, prompts_, kNewTokens), alone);
  }
}

TEST_P(HybridGreedy, GuessesAreRefused) {
  EngineConfig config;
  config.speculative_algorithm = "NGRAM";
  const auto engine = create(1, config);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("--speculative-algorithm NGRAM: the model has recurrent"),
            std::string::npos)
      << engine.error().message;
}

INSTANTIATE_TEST_SUITE_P(Tiny, HybridGreedy,
                         ::testing::Values("tiny-qwen3-next", "tiny-qwen3.5-moe"),
                         [](const auto& test) {
                           return std::string(test.index == 0 ? "Next" : "Moe");
                         });

}  // namespace
}  // namespace tw
