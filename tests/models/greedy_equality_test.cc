// Greedy output is a function of the prompt alone: not of the batch, the chunking of prefill, what
// the prefix cache held, preemption, or the number of threads. On the real model, with
// one kernel for all rows and with two: fp32 activations in prompts, int8 ones in what is
// generated.
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
    if (i % 4 == 1) prompt.insert(prompt.end(), prompt.begin(), prompt.end());
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

struct Served {
  LoadedModel loaded;
  std::unique_ptr<Engine> engine;
};

struct OneKernel {
  static constexpr auto prefill_precision = kernels::ActivationPrecision::bf16;
};
struct TwoKernels {
  static constexpr auto prefill_precision = kernels::ActivationPrecision::f32;
};

Served serve(int threads, EngineConfig config, kernels::ActivationPrecision prefill_precision) {
  Served served;
  served.loaded =
      load(real_model_path(), threads, kernels::ActivationPrecision::bf16, prefill_precision);
  if (!served.loaded.model) return served;
  if (config.max_total_tokens == 0) config.max_total_tokens = 8192;
  auto engine = Engine::create(std::move(served.loaded.model), config);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  if (engine) served.engine = std::move(*engine);
  return served;
}

template <typename Kernels>
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

  static Served serve(int threads, const EngineConfig& config) {
    return tw::serve(threads, config, Kernels::prefill_precision);
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

template <typename Kernels>
std::vector<std::vector<TokenId>> GreedyEquality<Kernels>::prompts_;
template <typename Kernels>
std::vector<std::vector<TokenId>> GreedyEquality<Kernels>::expected_;

using KernelPairs = ::testing::Types<OneKernel, TwoKernels>;
TYPED_TEST_SUITE(GreedyEquality, KernelPairs);

TYPED_TEST(GreedyEquality, InABatchOf32WithTwoThreads) {
  Served served = this->serve(2, {});
  ASSERT_TRUE(served.engine);
  this->expect_equal(greedy(*served.engine, this->prompts_, kNewTokens));
}

TYPED_TEST(GreedyEquality, WithPrefillInChunksOf64) {
  EngineConfig config;
  config.chunked_prefill_size = 64;
  Served served = this->serve(1, config);
  ASSERT_TRUE(served.engine);
  this->expect_equal(greedy(*served.engine, this->prompts_, kNewTokens));
}

TYPED_TEST(GreedyEquality, WithAWarmPrefixCache) {
  Served served = this->serve(2, {});
  ASSERT_TRUE(served.engine);
  greedy(*served.engine, this->prompts_, kNewTokens);
  const int64_t cached_before = served.engine->stats().cached_tokens_total;
  this->expect_equal(greedy(*served.engine, this->prompts_, kNewTokens));
  EXPECT_GT(served.engine->stats().cached_tokens_total - cached_before, 1000);
}

TYPED_TEST(GreedyEquality, WhenMemoryRunsOutAndRequestsArePreempted) {
  EngineConfig config;
  config.max_total_tokens = 400;  // a few sequences of up to 155 tokens
  Served served = this->serve(2, config);
  ASSERT_TRUE(served.engine);
  this->expect_equal(greedy(*served.engine, this->prompts_, kNewTokens));
}

// In a batch whose prompts come in chunks, again with their prefixes from the cache, and alone.
// Prompts repeat themselves, so that there is something to guess.
TYPED_TEST(GreedyEquality, WithGuessedTokens) {
  EngineConfig config;
  config.chunked_prefill_size = 64;
  config.speculative_algorithm = "NGRAM";
  config.speculative_num_steps = 4;
  Served served = this->serve(2, config);
  ASSERT_TRUE(served.engine);
  constexpr size_t kSome = 10;
  const std::vector<std::vector<TokenId>> some(this->prompts_.begin(),
                                               this->prompts_.begin() + kSome);
  const std::vector<std::vector<TokenId>> expected(this->expected_.begin(),
                                                   this->expected_.begin() + kSome);
  EXPECT_EQ(greedy(*served.engine, some, kNewTokens), expected);
  EXPECT_EQ(greedy(*served.engine, some, kNewTokens), expected);
  EXPECT_GT(served.engine->stats().cached_tokens_total, 300);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(greedy(*served.engine, {some[i]}, kNewTokens)[0], expected[i]);
  }
  const EngineStats stats = served.engine->stats();
  EXPECT_GT(stats.accepted_draft_tokens_total, 50);
  EXPECT_LT(stats.accepted_draft_tokens_total, stats.draft_tokens_total) << "none was wrong";
}

}  // namespace
}  // namespace tw
