// Requests about their prompt: embeddings and scores of labels, beside generating ones.
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/fake_model.h"

namespace tw {
namespace {

using testing_support::FakeModel;

std::vector<TokenId> prompt_of(int32_t first, int32_t length) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back((first + 7 * i) % FakeModel::kVocabSize);
  return prompt;
}

// What the fake model's states make of a prompt.
std::vector<float> expected_embedding(Pooling pooling, const std::vector<TokenId>& prompt) {
  const auto length = static_cast<int32_t>(prompt.size());
  PooledStates states;
  for (int32_t i = 0; i < length; ++i) {
    if (!is_pooled(pooling, i, length)) continue;
    const float state[2] = {
        static_cast<float>(FakeModel::next_token({prompt.begin(), prompt.begin() + i + 1})),
        static_cast<float>(i)};
    states.add(state);
  }
  return states.mean();
}

class PromptRequests : public ::testing::Test {
 protected:
  void start(EngineConfig config, bool give_nan = false) {
    auto model = std::make_unique<FakeModel>();
    model->give_nan = give_nan;
    auto engine = Engine::create(std::move(model), config);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  // The last output.
  std::future<EngineOutput> submit(Request request) {
    auto promise = std::make_shared<std::promise<EngineOutput>>();
    request.sink = [promise](EngineOutput&& output) {
      if (output.finish_reason != FinishReason::none) promise->set_value(std::move(output));
    };
    request.sampling.temperature = 0;
    auto future = promise->get_future();
    const auto id = engine_->submit(std::move(request));
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
    return future;
  }

  std::future<EngineOutput> embed(Pooling pooling, std::vector<TokenId> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.pooling = pooling;
    return submit(std::move(request));
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(PromptRequests, EmbeddingsOfChunkedPromptsInABatch) {
  EngineConfig config;
  config.chunked_prefill_size = 5;
  config.page_size = 4;
  start(config);
  std::vector<std::future<EngineOutput>> outputs;
  std::vector<std::vector<float>> expected;
  for (const Pooling pooling : {Pooling::last, Pooling::mean, Pooling::cls}) {
    for (const int32_t length : {1, 4, 5, 23, 64}) {
      // Some share prefixes, among them prompts that are computed already.
      const auto prompt = prompt_of(length % 2, length);
      expected.push_back(expected_embedding(pooling, prompt));
      outputs.push_back(embed(pooling, prompt));
    }
  }
  Request generating;
  generating.prompt = prompt_of(3, 10);
  generating.sampling.max_new_tokens = 20;
  auto generated = submit(std::move(generating));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const EngineOutput output = outputs[i].get();
    EXPECT_EQ(output.embedding, expected[i]) << i;
    EXPECT_EQ(output.finish_reason, FinishReason::stop);
    EXPECT_EQ(output.num_output_tokens, 0);
    EXPECT_TRUE(output.tokens.empty());
  }
  EXPECT_EQ(generated.get().num_output_tokens, 20);
  EXPECT_EQ(engine_->stats().kv_tokens_used, engine_->stats().kv_tokens_evictable);
}

TEST_F(PromptRequests, EmbeddingsSurvivePreemption) {
  EngineConfig config;
  config.page_size = 4;
  config.max_total_tokens = 64;
  config.chunked_prefill_size = 3;
  start(config);
  std::vector<std::future<EngineOutput>> generated;
  for (int32_t i = 0; i < 3; ++i) {
    Request request;
    request.prompt = prompt_of(i, 6);
    request.sampling.max_new_tokens = 30;
    generated.push_back(submit(std::move(request)));
  }
  std::vector<std::future<EngineOutput>> outputs;
  for (int32_t i = 0; i < 8; ++i) outputs.push_back(embed(Pooling::mean, prompt_of(i + 3, 20)));
  for (int32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(outputs[static_cast<size_t>(i)].get().embedding,
              expected_embedding(Pooling::mean, prompt_of(i + 3, 20)));
  }
  for (auto& output : generated) EXPECT_EQ(output.get().num_output_tokens, 30);
  EXPECT_GT(engine_->stats().num_preemptions, 0);
}

TEST_F(PromptRequests, TheLastStateNeedsNoMoreThanTheCacheLacks) {
  EngineConfig config;
  config.page_size = 4;
  start(config);
  const auto prompt = prompt_of(1, 21);
  EXPECT_EQ(embed(Pooling::last, prompt).get().num_cached_tokens, 0);
  const EngineOutput again = embed(Pooling::last, prompt).get();
  EXPECT_EQ(again.num_cached_tokens, 20);
  EXPECT_EQ(again.embedding, expected_embedding(Pooling::last, prompt));
  EXPECT_EQ(embed(Pooling::mean, prompt).get().num_cached_tokens, 0);
}

TEST_F(PromptRequests, LabelsGetTheirLogProbabilities) {
  start({});
  const auto prompt = prompt_of(1, 21);
  std::vector<TokenId> labels(FakeModel::kVocabSize);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<TokenId>(i);
  Request request;
  request.prompt = prompt;
  request.label_token_ids = labels;
  const EngineOutput output = submit(std::move(request)).get();
  EXPECT_EQ(output.finish_reason, FinishReason::stop);
  EXPECT_TRUE(output.tokens.empty());
  ASSERT_EQ(output.label_logprobs.size(), labels.size());
  double sum = 0;
  for (const float logprob : output.label_logprobs) sum += std::exp(logprob);
  EXPECT_NEAR(sum, 1, 1e-5);
  const auto best = std::ranges::max_element(output.label_logprobs);
  EXPECT_EQ(best - output.label_logprobs.begin(), FakeModel::next_token(prompt));
}

TEST_F(PromptRequests, BrokenWeightsAndUnknownLabelsAreErrors) {
  start({}, true);
  EXPECT_EQ(embed(Pooling::mean, {1, 2}).get().finish_reason, FinishReason::error);
  Request request;
  request.prompt = {1, 2};
  request.label_token_ids = {3};
  const EngineOutput output = submit(request).get();
  EXPECT_EQ(output.finish_reason, FinishReason::error);
  EXPECT_NE(output.error->message.find("NaN"), std::string::npos);
  request.label_token_ids = {3, 97};
  const auto refused = engine_->submit(std::move(request));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("token id 97"), std::string::npos);
}

TEST(PoolingNames, AreThoseOfTheFlag) {
  EXPECT_EQ(find_pooling("mean"), Pooling::mean);
  EXPECT_FALSE(find_pooling("max"));
  EXPECT_EQ(pooling_names(), "last, mean, cls");
}

}  // namespace
}  // namespace tw
