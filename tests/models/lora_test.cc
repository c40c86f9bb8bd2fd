// Adapters equal Transformers with the adapter merged into its weights; a batch may mix them, and
// each of its rows is the one that it would be alone, bit for bit.
//
// Tolerance: as in golden_test.cc for fp32 activations and the same cache, 1e-3 of the largest
// logit; for weights in fp32, which the engine rounds to bf16, 2e-2.
#include "nn/lora_adapter.h"

#include <algorithm>
#include <map>

#include "models/forward_runner.h"
#include "models/golden_file.h"
#include "models/logit_error.h"
#include "models/real_model.h"
#include "models/tensor_parallel.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using testing_support::Collector;
using testing_support::ForwardRunner;
using testing_support::GoldenFile;
using testing_support::largest_magnitude;
using testing_support::logit_error;

std::filesystem::path test_model(const std::string& name) {
  return std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / name;
}

// A model that takes adapters, of several ranks where wanted.
struct Adapted {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<TeamGroup> teams;
  std::unique_ptr<Model> model;

  explicit Adapted(const std::string& name, int64_t max_rank = 16, int num_ranks = 1) {
    auto opened = Checkpoint::open(test_model(name));
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    if (!opened) return;
    checkpoint = std::move(*opened);
    teams = std::make_unique<TeamGroup>(std::vector<int>(static_cast<size_t>(num_ranks), 1));
    WeightLoader loader(*checkpoint, teams->team(0),
                        {*usable_cpu_features(), ActivationPrecision::f32});
    loader.max_lora_rank = max_rank;
    auto loaded = load_model(loader, *teams);
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().message);
    if (loaded) model = std::move(*loaded);
  }

  Expected<LoraAdapter> load(const std::string& name) const {
    auto adapter = LoraCheckpoint::open(test_model(name));
    if (!adapter) return forward_error(adapter);
    return model->load_adapter(*adapter);
  }

  // Why the adapter is refused.
  std::string refusal(const std::string& name) const {
    const auto adapter = load(name);
    EXPECT_FALSE(adapter);
    return adapter ? "" : adapter.error().message;
  }
};

class Lora : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(test_model("lora-glm4"))) return;
    GTEST_SKIP() << "no adapters; run tools/proxy/make_proxy.py --tests";
  }

  std::vector<int32_t> prompt(const std::string& adapter) const {
    const auto ids = golden_.integers(adapter + ".token_ids");
    return {ids.begin(), ids.end()};
  }

  // Logits of the golden file's tokens, and how far they are from it.
  double error_of(const Adapted& adapted, const std::string& name) const {
    const auto adapter = adapted.load(name);
    EXPECT_TRUE(adapter) << (adapter ? "" : adapter.error().message);
    if (!adapter) return INFINITY;
    ForwardRunner runner(*adapted.model, 64, 16);
    runner.adapters = {&*adapter};
    const std::vector<float> logits = runner.run(prompt(name));
    const auto expected = golden_.floats(name + ".logits");
    const auto last = std::span(logits).last(expected.size());
    return logit_error(last, expected, largest_magnitude(expected)).relative;
  }

  GoldenFile golden_{"lora"};
};

TEST_F(Lora, EqualsTheReference) {
  EXPECT_LT(error_of(Adapted("tiny-mistral"), "lora-mistral-all"), 1e-3);
  EXPECT_LT(error_of(Adapted("tiny-mistral"), "lora-mistral-some"), 2e-2);
  EXPECT_LT(error_of(Adapted("tiny-glm4"), "lora-glm4"), 1e-3);
}

TEST_F(Lora, RowsOfGgufAreThoseOfTheFolder) {
  EXPECT_LT(error_of(Adapted("tiny-mistral.gguf"), "lora-mistral-all"), 1e-3);
}

TEST_F(Lora, RanksComputeWhatOneDoes) {
  for (const int num_ranks : {2, 3, 5}) {
    SCOPED_TRACE(num_ranks);
    EXPECT_LT(error_of(Adapted("tiny-mistral", 16, num_ranks), "lora-mistral-all"), 2e-3);
    EXPECT_LT(error_of(Adapted("tiny-glm4", 16, num_ranks), "lora-glm4"), 2e-3);
  }
}

TEST_F(Lora, MixedBatchesAreTheSameBits) {
  const std::vector<int32_t> tokens = prompt("lora-mistral-all");
  Adapted adapted("tiny-mistral");
  const auto all = adapted.load("lora-mistral-all"), some = adapted.load("lora-mistral-some");
  ASSERT_TRUE(all && some);
  ForwardRunner runner(*adapted.model, 64, 256, 5);
  const auto alone = [&](const LoraAdapter* adapter) {
    runner.adapters = {adapter};
    return runner.run(tokens);
  };
  const std::vector<float> expected[] = {alone(nullptr), alone(&*all), alone(&*some)};
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(expected[1], expected[2]);

  const std::span<const int32_t> sequences[] = {tokens, tokens, tokens, tokens, tokens};
  const size_t kinds[] = {1, 2, 0, 1, 1};
  runner.adapters = {&*all, &*some, nullptr, &*all, &*all};
  const Matrix<const float> mixed = runner.step(sequences, 0, tokens.size());
  for (size_t s = 0; s < 5; ++s) {
    const float* rows = mixed.row(static_cast<int64_t>(s * tokens.size()));
    EXPECT_TRUE(std::equal(expected[kinds[s]].begin(), expected[kinds[s]].end(), rows)) << s;
  }
  auto plain = testing_support::load(test_model("tiny-mistral"), 1, ActivationPrecision::f32);
  EXPECT_EQ(ForwardRunner(*plain.model, 64, 256).run(tokens), expected[0])
      << "a model without adapters computes what one without an adapter in the batch does";
}

TEST_F(Lora, PrefixesBelongToTheirAdapter) {
  Adapted adapted("tiny-mistral");
  EngineConfig config;
  config.max_total_tokens = 1024;
  auto created = Engine::create(std::move(adapted.model), config);
  ASSERT_TRUE(created) << created.error().message;
  Engine& engine = **created;
  const auto checkpoint = LoraCheckpoint::open(test_model("lora-mistral-all"));
  ASSERT_TRUE(checkpoint);
  const auto first = engine.load_adapter(*checkpoint), second = engine.load_adapter(*checkpoint);
  ASSERT_TRUE(first && second);
  EXPECT_NE((*first)->id, (*second)->id);

  struct Answer {
    std::vector<TokenId> tokens;
    int32_t num_cached = 0;
  };
  const auto ask = [&](std::shared_ptr<const LoraAdapter> adapter) {
    Collector collector(1);
    Answer answer;
    Request request;
    request.prompt = prompt("lora-mistral-all");
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = 6;
    request.sampling.ignore_eos = true;
    request.adapter = std::move(adapter);
    request.sink = [sink = collector.sink(0), &answer](EngineOutput&& output) {
      answer.num_cached = output.num_cached_tokens;
      sink(std::move(output));
    };
    EXPECT_TRUE(engine.submit(std::move(request)));
    answer.tokens = collector.wait().front();
    return answer;
  };
  const Answer plain = ask(nullptr), adapted_once = ask(*first);
  EXPECT_EQ(adapted_once.num_cached, 0) << "the prompt is in the cache, but not with this adapter";
  EXPECT_NE(adapted_once.tokens, plain.tokens);
  const Answer again = ask(*first), plain_again = ask(nullptr);
  EXPECT_EQ(again.num_cached, 32);
  EXPECT_EQ(again.tokens, adapted_once.tokens);
  EXPECT_EQ(plain_again.num_cached, 32);
  EXPECT_EQ(plain_again.tokens, plain.tokens);
  EXPECT_EQ(ask(*second).num_cached, 0) << "loaded anew, it may be another";
}

TEST_F(Lora, WhatDoesNotFitIsRefused) {
  const std::string unknown = Adapted("tiny-mistral").refusal("lora-glm4");
  EXPECT_NE(
      unknown.find("model.layers.0.mlp.down_proj maps 176 to 112 values; the model's layer 176 "
                   "to 96"),
      std::string::npos)
      << unknown;
  const std::string missing = Adapted("tiny-glm4").refusal("lora-mistral-all");
  EXPECT_NE(missing.find("model.layers.0.mlp.down_proj"), std::string::npos) << missing;
  const std::string large = Adapted("tiny-mistral", 8).refusal("lora-mistral-some");
  EXPECT_NE(large.find("has rank 12; at most 8 can be loaded (--max-lora-rank)"), std::string::npos)
      << large;
  const std::string off = Adapted("tiny-mistral", 0).refusal("lora-mistral-all");
  EXPECT_NE(off.find("--enable-lora"), std::string::npos) << off;
}

}  // namespace
}  // namespace tw
