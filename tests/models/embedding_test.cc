// Embeddings are Transformers' final hidden states, the same bits whatever runs beside them, and
// whether one rank computes them or two.
//
// Tolerance: as in golden_test.cc, with fp32 activations and keys and values rounded to bf16 in the
// cache, which the reference does not do: 2e-2 of the vector's largest number.
#include <algorithm>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "models/golden_file.h"
#include "models/logit_error.h"
#include "models/real_model.h"
#include "models/tensor_parallel.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using testing_support::GoldenFile;
using testing_support::largest_magnitude;
using testing_support::logit_error;

constexpr const char* kPoolings[] = {"last", "mean", "cls"};

class Embeddings : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto path = std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / GetParam();
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is missing; run tools/proxy/make_proxy.py --tests";
    }
    path_ = path;
    const auto ids = golden_.integers(std::string(GetParam()) + ".token_ids");
    prompt_ = {ids.begin(), ids.end()};
  }

  static std::unique_ptr<Engine> engine_of(std::unique_ptr<Model> model, int32_t chunk) {
    EngineConfig config;
    config.max_total_tokens = 1024;
    config.chunked_prefill_size = chunk;
    auto engine = Engine::create(std::move(model), config);
    EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
    return engine ? std::move(*engine) : nullptr;
  }

  static std::future<EngineOutput> submit(Engine& engine, Request request) {
    auto promise = std::make_shared<std::promise<EngineOutput>>();
    auto future = promise->get_future();
    request.sink = [promise](EngineOutput&& output) {
      if (output.finish_reason != FinishReason::none) promise->set_value(std::move(output));
    };
    EXPECT_TRUE(engine.submit(std::move(request)));
    return future;
  }

  // The prompt's embeddings in the order of kPoolings, with other requests before and beside them.
  std::vector<std::vector<float>> embed(Engine& engine, int num_others) {
    std::vector<std::future<EngineOutput>> others, own;
    for (int i = 0; i < num_others; ++i) {
      Request other;
      other.prompt = {prompt_.begin() + i, prompt_.begin() + 3 * i + 9};
      other.sampling.max_new_tokens = 8;
      if (i % 2 == 1) other.pooling = Pooling::mean;
      others.push_back(submit(engine, std::move(other)));
    }
    for (const char* pooling : kPoolings) {
      Request request;
      request.prompt = prompt_;
      request.pooling = find_pooling(pooling);
      own.push_back(submit(engine, std::move(request)));
    }
    std::vector<std::vector<float>> embeddings;
    for (auto& output : own) embeddings.push_back(output.get().embedding);
    for (auto& output : others) EXPECT_NE(output.get().finish_reason, FinishReason::error);
    return embeddings;
  }

  void expect_golden(const std::vector<float>& embedding, const std::string& pooling) const {
    const auto expected = golden_.floats(std::string(GetParam()) + "." + pooling);
    ASSERT_EQ(embedding.size(), expected.size());
    EXPECT_LT(logit_error(embedding, expected, largest_magnitude(expected)).relative, 2e-2);
  }

  GoldenFile golden_{"embeddings"};
  std::filesystem::path path_;
  std::vector<TokenId> prompt_;
};

TEST_P(Embeddings, EqualTheReferenceWhateverTheBatch) {
  auto alone = testing_support::load(path_, 1, ActivationPrecision::f32);
  auto beside = testing_support::load(path_, 2, ActivationPrecision::f32);
  ASSERT_TRUE(alone.model && beside.model);
  const auto whole = engine_of(std::move(alone.model), 512);
  const auto chunked = engine_of(std::move(beside.model), 7);
  const auto embeddings = embed(*whole, 0);
  EXPECT_EQ(embed(*chunked, 6), embeddings);
  EXPECT_EQ(embed(*chunked, 2), embeddings) << "with a prefix cache that has the prompt";
  for (size_t i = 0; i < embeddings.size(); ++i) {
    SCOPED_TRACE(kPoolings[i]);
    expect_golden(embeddings[i], kPoolings[i]);
  }
}

TEST_P(Embeddings, OfTwoRanksEqualTheReference) {
  auto checkpoint = Checkpoint::open(path_);
  ASSERT_TRUE(checkpoint);
  TeamGroup teams(std::vector<int>{1, 1});
  auto model = load_model(
      WeightLoader(**checkpoint, teams.team(0), {*usable_cpu_features(), ActivationPrecision::f32}),
      teams);
  ASSERT_TRUE(model) << model.error().message;
  const auto engine = engine_of(std::move(*model), 16);
  expect_golden(embed(*engine, 3)[1], kPoolings[1]);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Embeddings, ::testing::Values("tiny-qwen3", "tiny-gemma2"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace tw
