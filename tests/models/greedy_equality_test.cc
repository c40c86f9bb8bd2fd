// Greedy output is a function of the prompt alone: not of the batch, the chunking of prefill, what
// the prefix cache held, preemption, or the number of threads. On the real model.
#include <random>

#include "models/real_model.h"

namespace tw {
namespace {

using testing_support::greedy;
using testing_support::load;
using testing_support::LoadedModel;
using testing_support::real_model_path;

constexpr int32_t kNewTokens = 24;

// Prompts of different lengths, some with a common beginning. Ids are arbitrary: the model need
// not like the text.
std::vector<std::vector<TokenId>> make_prompts() {
  std::mt19937 random(7);
  std::vector<TokenId> common(70);
  for (TokenId& id : common) id = static_cast<TokenId>(100 + random() % 20000);
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 32; ++i) {
    std::vector<TokenId> prompt;
    if (i % 3 == 0) prompt = common;
    const size_t extra = 1 + random() % 60;
    for (size_t k = 0; k < extra; ++k) {
      prompt.push_back(static_cast<TokenId>(100 + random() % 20000));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

struct Served {
  LoadedModel loaded;
  std::unique_ptr<Engine> engine;
};

Served serve(int threads, EngineConfig config) {
  Served served;
  served.loaded = load(real_model_path(), threads, kernels::ActivationPrecision::bf16);
  if (!served.loaded.model) return served;
  if (config.max_total_tokens == 0) config.max_total_tokens = 8192;
  auto engine = Engine::create(std::move(served.loaded.model), config);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  if (engine) served.engine = std::move(*engine);
  return served;
}

class GreedyEquality : public ::testing::Test {
 protected:
  // Every prompt alone, without a prefix cache, with one thread: what the others must equal.
  static void SetUpTestSuite() {
    prompts_ = make_prompts();
    EngineConfig config;
    config.disable_radix_cache = true;
    Served served = serve(1, config);
    ASSERT_TRUE(served.engine);
    for (const auto& prompt : prompts_) {
      expected_.push_back(greedy(*served.engine, {prompt}, kNewTokens)[0]);
    }
  }

  static void expect_equal(const std::vector<std::vector<TokenId>>& outputs) {
    ASSERT_EQ(outputs.size(), expected_.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i], expected_[i]) << "prompt " << i;
    }
  }

  static std::vector<std::vector<TokenId>> prompts_;
  static std::vector<std::vector<TokenId>> expected_;
};

std::vector<std::vector<TokenId>> GreedyEquality::prompts_;
std::vector<std::vector<TokenId>> GreedyEquality::expected_;

TEST_F(GreedyEquality, InABatchOf32WithTwoThreads) {
  Served served = serve(2, {});
  ASSERT_TRUE(served.engine);
  expect_equal(greedy(*served.engine, prompts_, kNewTokens));
}

TEST_F(GreedyEquality, WithPrefillInChunksOf64) {
  EngineConfig config;
  config.chunked_prefill_size = 64;
  Served served = serve(1, config);
  ASSERT_TRUE(served.engine);
  expect_equal(greedy(*served.engine, prompts_, kNewTokens));
}

TEST_F(GreedyEquality, WithAWarmPrefixCache) {
  Served served = serve(2, {});
  ASSERT_TRUE(served.engine);
  greedy(*served.engine, prompts_, kNewTokens);
  const int64_t cached_before = served.engine->stats().cached_tokens_total;
  expect_equal(greedy(*served.engine, prompts_, kNewTokens));
  EXPECT_GT(served.engine->stats().cached_tokens_total - cached_before, 1000);
}

TEST_F(GreedyEquality, WhenMemoryRunsOutAndRequestsArePreempted) {
  EngineConfig config;
  config.max_total_tokens = 400;  // a few sequences of up to 155 tokens
  Served served = serve(2, config);
  ASSERT_TRUE(served.engine);
  expect_equal(greedy(*served.engine, prompts_, kNewTokens));
}

}  // namespace
}  // namespace tw
