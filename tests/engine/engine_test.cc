// The engine thread around the scheduler: requests, cancellation, limits, errors, shutdown.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/fake_constraint.h"
#include "engine/fake_model.h"

namespace tw {
namespace {

using testing_support::FakeConstraint;
using testing_support::FakeModel;

// Collects what a request's sink receives.
class Inbox {
 public:
  OutputSink sink() {
    return [this](EngineOutput&& output) {
      std::lock_guard lock(mutex_);
      outputs_.push_back(std::move(output));
      arrived_.notify_all();
    };
  }

  // All outputs, once the last one is there.
  std::vector<EngineOutput> wait_for_end() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(arrived_.wait_for(lock, std::chrono::seconds(60), [this] {
      return !outputs_.empty() && outputs_.back().finish_reason != FinishReason::none;
    }));
    return outputs_;
  }

  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(arrived_.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return outputs_.size() >= count; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<EngineOutput> outputs_;
};

std::vector<TokenId> tokens_of(const std::vector<EngineOutput>& outputs) {
  std::vector<TokenId> tokens;
  for (const EngineOutput& output : outputs) {
    for (const TokenEvent& event : output.tokens) tokens.push_back(event.token);
  }
  return tokens;
}

std::vector<TokenId> oracle(std::vector<TokenId> context, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(FakeModel::next_token(context));
    context.push_back(tokens.back());
  }
  return tokens;
}

Request request_of(std::vector<TokenId> prompt, int32_t max_new_tokens, Inbox& inbox) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_new_tokens = max_new_tokens;
  request.sink = inbox.sink();
  return request;
}

// Steps of a model that has none of its own.
int64_t traced_steps(const EngineProfile& profile) {
  return std::ssize(profile.model_steps().events(0));
}

struct EngineTest : ::testing::Test {
  std::unique_ptr<Engine> make(EngineConfig config = {}, int64_t context_length = 512,
                               bool give_nan = false) {
    auto fake = std::make_unique<FakeModel>(context_length);
    fake->give_nan = give_nan;
    model = fake.get();
    auto engine = Engine::create(std::move(fake), config);
    EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
    return engine ? std::move(*engine) : nullptr;
  }
  FakeModel* model = nullptr;
};

TEST_F(EngineTest, GeneratesWhatTheModelSays) {
  const auto engine = make();
  Inbox inbox;
  ASSERT_TRUE(engine->submit(request_of({5, 6, 7}, 20, inbox)));
  const auto outputs = inbox.wait_for_end();
  EXPECT_EQ(tokens_of(outputs), oracle({5, 6, 7}, 20));
  EXPECT_EQ(outputs.back().finish_reason, FinishReason::length);
  EXPECT_EQ(outputs.back().num_prompt_tokens, 3);
  EXPECT_EQ(outputs.back().num_output_tokens, 20);
}

TEST_F(EngineTest, StopTokensEndAndMinNewTokensDelaysThem) {
  EngineConfig config;
  const auto expected = oracle({1, 2}, 10);
  config.eos_token_ids = {expected[3]};
  const auto engine = make(config);
  Inbox stopped, ignoring, longer;
  ASSERT_TRUE(engine->submit(request_of({1, 2}, 10, stopped)));
  const auto outputs = stopped.wait_for_end();
  const auto first = std::find(expected.begin(), expected.end(), expected[3]) - expected.begin();
  EXPECT_EQ(tokens_of(outputs).size(), static_cast<size_t>(first + 1));
  EXPECT_EQ(outputs.back().finish_reason, FinishReason::stop);
  EXPECT_EQ(outputs.back().matched_stop_token, expected[3]);

  Request request = request_of({1, 2}, 10, ignoring);
  request.sampling.ignore_eos = true;
  ASSERT_TRUE(engine->submit(std::move(request)));
  EXPECT_EQ(tokens_of(ignoring.wait_for_end()), expected);

  request = request_of({1, 2}, 10, longer);
  request.sampling.min_new_tokens = 8;
  ASSERT_TRUE(engine->submit(std::move(request)));
  const auto tokens = tokens_of(longer.wait_for_end());
  EXPECT_GE(tokens.size(), 8u);
  EXPECT_EQ(std::find(tokens.begin(), tokens.begin() + 7, expected[3]), tokens.begin() + 7);
}

TEST_F(EngineTest, ConstraintsHoldThroughPreemptionAndLeaveOthersAlone) {
  EngineConfig config;
  config.page_size = 4;
  config.max_total_tokens = 64;  // too few for all: some are preempted
  const auto engine = make(config);
  std::vector<Inbox> free(4), bound(4);
  for (int32_t i = 0; i < 4; ++i) {
    const auto index = static_cast<size_t>(i);
    ASSERT_TRUE(engine->submit(request_of({i, 2}, 30, free[index])));
    Request request = request_of({i, 3}, 30, bound[index]);
    request.constraint = std::make_shared<FakeConstraint>(FakeModel::kVocabSize, 4, 25);
    ASSERT_TRUE(engine->submit(std::move(request)));
  }
  const FakeConstraint rule(FakeModel::kVocabSize, 4, 25);
  for (int32_t i = 0; i < 4; ++i) {
    const auto index = static_cast<size_t>(i);
    EXPECT_EQ(tokens_of(free[index].wait_for_end()), oracle({i, 2}, 30));
    const auto outputs = bound[index].wait_for_end();
    const auto tokens = tokens_of(outputs);
    ASSERT_EQ(tokens.size(), 25u) << "the constraint ends it";
    for (int32_t p = 0; p < 25; ++p) EXPECT_TRUE(rule.allows(tokens[static_cast<size_t>(p)], p));
    EXPECT_EQ(outputs.back().finish_reason, FinishReason::stop);
    EXPECT_FALSE(outputs.back().matched_stop_token);
  }
  EXPECT_GT(engine->stats().num_preemptions, 0);
}

TEST_F(EngineTest, TheContextLengthEndsAGeneration) {
  const auto engine = make({}, 32);
  Inbox inbox;
  ASSERT_TRUE(engine->submit(request_of(std::vector<TokenId>(20, 3), 1000, inbox)));
  const auto outputs = inbox.wait_for_end();
  EXPECT_EQ(tokens_of(outputs).size(), 12u);
  EXPECT_EQ(outputs.back().finish_reason, FinishReason::length);
}

TEST_F(EngineTest, ImpossibleRequestsAreRefusedWithTheReason) {
  EngineConfig config;
  config.max_total_tokens = 64;
  const auto engine = make(config, 128);
  Inbox inbox;
  const auto message = [&](Request request) {
    const auto id = engine->submit(std::move(request));
    return id ? std::string() : id.error().message;
  };
  EXPECT_NE(message(request_of({}, 1, inbox)).find("empty"), std::string::npos);
  EXPECT_NE(
      message(request_of(std::vector<TokenId>(128, 1), 1, inbox)).find("context length is 128"),
      std::string::npos);
  EXPECT_NE(message(request_of(std::vector<TokenId>(100, 1), 1, inbox)).find("KV cache holds 64"),
            std::string::npos);
  EXPECT_NE(message(request_of({-1}, 1, inbox)).find("token id -1"), std::string::npos);
  EXPECT_NE(message(request_of({97}, 1, inbox)).find("token id 97"), std::string::npos);
  Request request = request_of({1}, 1, inbox);
  request.sampling.temperature = -0.5f;
  EXPECT_NE(message(std::move(request)).find("temperature is -0.5"), std::string::npos);
  request = request_of({1}, 1, inbox);
  request.num_top_logprobs = 21;
  EXPECT_NE(message(std::move(request)).find("[0, 20]"), std::string::npos);
}

TEST_F(EngineTest, AFullQueueRefusesAndRecovers) {
  EngineConfig config;
  config.max_running_requests = 1;
  config.max_queued_requests = 1;
  const auto engine = make(config, 100000);
  Inbox first, second, third, fourth;
  const auto first_id = engine->submit(request_of({1}, 50000, first));
  const auto second_id = engine->submit(request_of({2}, 2, second));
  ASSERT_TRUE(first_id && second_id);
  const auto refused = engine->submit(request_of({3}, 2, third));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  engine->abort(*first_id);
  EXPECT_EQ(first.wait_for_end().back().finish_reason, FinishReason::abort);
  EXPECT_EQ(tokens_of(second.wait_for_end()), oracle({2}, 2));
  EXPECT_TRUE(engine->submit(request_of({3}, 2, fourth)));
  EXPECT_EQ(tokens_of(fourth.wait_for_end()), oracle({3}, 2));
}

TEST_F(EngineTest, AbortFreesThePagesAtOnceAlsoWhileQueued) {
  EngineConfig config;
  config.max_running_requests = 1;
  config.disable_radix_cache = true;
  const auto engine = make(config, 100000);
  Inbox running, queued;
  const auto running_id = engine->submit(request_of({1}, 90000, running));
  const auto queued_id = engine->submit(request_of({2}, 10, queued));
  running.wait_for(5);
  engine->abort(*queued_id);
  EXPECT_EQ(queued.wait_for_end().back().finish_reason, FinishReason::abort);
  engine->abort(*running_id);
  EXPECT_EQ(running.wait_for_end().back().finish_reason, FinishReason::abort);
  EXPECT_TRUE(engine->flush_cache());
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.kv_tokens_used, 0);
  EXPECT_EQ(stats.num_requests_aborted, 2);
  EXPECT_EQ(stats.num_running, 0);
  engine->abort(12345);  // unknown: ignored
}

TEST_F(EngineTest, ThePrefixCacheServesASecondRequestAndFlushDropsIt) {
  const auto engine = make();
  const std::vector<TokenId> prompt(50, 9);
  const auto run = [&] {
    Inbox inbox;
    EXPECT_TRUE(engine->submit(request_of(prompt, 4, inbox)));
    const auto outputs = inbox.wait_for_end();
    EXPECT_EQ(tokens_of(outputs), oracle(prompt, 4));
    return outputs.back().num_cached_tokens;
  };
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(run(), 48);
  EXPECT_TRUE(engine->flush_cache());
  EXPECT_EQ(run(), 0);
}

TEST_F(EngineTest, SimultaneousRequestsShareOnePrefill) {
  const auto engine = make();
  const std::vector<TokenId> prompt(200, 4);
  std::vector<Inbox> inboxes(8);
  for (Inbox& inbox : inboxes) ASSERT_TRUE(engine->submit(request_of(prompt, 3, inbox)));
  int64_t cached = 0;
  for (Inbox& inbox : inboxes) {
    const auto outputs = inbox.wait_for_end();
    EXPECT_EQ(tokens_of(outputs), oracle(prompt, 3));
    cached += outputs.back().num_cached_tokens;
  }
  EXPECT_EQ(cached, 7 * 192);
}

TEST_F(EngineTest, PromptLogprobsCoverThePromptWhateverTheChunks) {
  const std::vector<TokenId> prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  std::vector<float> reference;
  for (int32_t chunk : {64, 3, 1}) {
    EngineConfig config;
    config.chunked_prefill_size = chunk;
    const auto engine = make(config);
    Inbox inbox;
    Request request = request_of(prompt, 2, inbox);
    request.return_logprob = request.return_prompt_logprob = true;
    request.num_top_logprobs = 3;
    ASSERT_TRUE(engine->submit(std::move(request)));
    const auto outputs = inbox.wait_for_end();
    const auto& events = outputs.front().prompt_logprobs;
    ASSERT_EQ(events.size(), prompt.size());
    std::vector<float> values;
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].token, prompt[i]);
      values.push_back(events[i].logprob);
      if (i > 0) {
        EXPECT_LT(events[i].logprob, 0);
        EXPECT_EQ(events[i].top_logprobs.size(), 3u);
      }
    }
    if (reference.empty()) reference = values;
    EXPECT_EQ(values, reference);
  }
}

TEST_F(EngineTest, NoNewTokensStillComputesThePrompt) {
  const auto engine = make();
  Inbox inbox;
  ASSERT_TRUE(engine->submit(request_of({1, 2, 3}, 0, inbox)));
  const auto outputs = inbox.wait_for_end();
  EXPECT_EQ(outputs.back().finish_reason, FinishReason::length);
  EXPECT_TRUE(tokens_of(outputs).empty());
}

TEST_F(EngineTest, BrokenLogitsEndOneRequestNotTheEngine) {
  const auto engine = make({}, 512, true);
  Inbox broken;
  ASSERT_TRUE(engine->submit(request_of({1}, 5, broken)));
  const auto outputs = broken.wait_for_end();
  EXPECT_EQ(outputs.back().finish_reason, FinishReason::error);
  ASSERT_TRUE(outputs.back().error);
  EXPECT_NE(outputs.back().error->message.find("NaN"), std::string::npos);
}

TEST_F(EngineTest, ShutdownAbortsWhatRunsAndRefusesWhatComes) {
  const auto engine = make({}, 1 << 20);
  Inbox running, late;
  ASSERT_TRUE(engine->submit(request_of({1}, 1000000, running)));
  running.wait_for(3);
  engine->shutdown();
  EXPECT_EQ(running.wait_for_end().back().finish_reason, FinishReason::abort);
  const auto refused = engine->submit(request_of({1}, 1, late));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_FALSE(engine->flush_cache());
  engine->shutdown();
}

TEST_F(EngineTest, ManyClientsAtOnceEachGetTheirOwn) {
  EngineConfig config;
  config.max_total_tokens = 600;
  config.chunked_prefill_size = 32;
  const auto engine = make(config);
  std::vector<std::thread> clients;
  for (int client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 15; ++i) {
        std::vector<TokenId> prompt(static_cast<size_t>(5 + 7 * ((client + i) % 9)),
                                    1 + client % 2);
        prompt.push_back(i);
        Inbox inbox;
        const auto id = engine->submit(request_of(prompt, 10 + i, inbox));
        ASSERT_TRUE(id);
        if (i % 5 == 4) {
          engine->abort(*id);
          inbox.wait_for_end();
        } else {
          EXPECT_EQ(tokens_of(inbox.wait_for_end()), oracle(prompt, 10 + i));
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(engine->stats().num_running, 0);
}

// In every sampling mode, and at the edges: the context's end, a stop token among accepted drafts.
TEST_F(EngineTest, DraftsChangeNothingButTheNumberOfSteps) {
  const auto run = [&](const char* algorithm, const SamplingParams& sampling, int64_t& steps) {
    EngineConfig config;
    config.speculative_algorithm = algorithm;
    config.speculative_num_steps = 4;
    const auto engine = make(config, 300);
    model->cycle = 7;
    std::vector<Inbox> inboxes(5);
    std::vector<std::vector<TokenId>> all;
    for (size_t i = 0; i < inboxes.size(); ++i) {
      Request request = request_of({static_cast<TokenId>(i), 50, 51}, 0, inboxes[i]);
      request.sampling = sampling;
      request.return_logprob = true;
      EXPECT_TRUE(engine->submit(std::move(request)));
    }
    for (Inbox& inbox : inboxes) {
      const auto outputs = inbox.wait_for_end();
      all.push_back(tokens_of(outputs));
      EXPECT_EQ(outputs.back().num_output_tokens, static_cast<int32_t>(all.back().size()));
    }
    steps = model->num_steps;
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.draft_tokens_total > 0, *algorithm != 0);
    EXPECT_LE(stats.accepted_draft_tokens_total, stats.draft_tokens_total);
    return all;
  };
  SamplingParams greedy, warm, penalized, stopped;
  greedy.temperature = 0;
  warm.temperature = 0.8f;
  penalized.temperature = 0.5f;
  penalized.frequency_penalty = 0.1f;
  stopped.temperature = 0;
  stopped.min_new_tokens = 40;
  stopped.stop_token_ids = {3};
  for (SamplingParams sampling : {greedy, warm, penalized, stopped}) {
    sampling.seed = 5;
    sampling.max_new_tokens = 1000;
    int64_t plain_steps = 0, steps = 0;
    const auto plain = run("", sampling, plain_steps);
    EXPECT_EQ(run("NGRAM", sampling, steps), plain);
    EXPECT_LE(steps, plain_steps);
    if (sampling.temperature == 0 && sampling.stop_token_ids.empty()) {
      EXPECT_LT(2 * steps, plain_steps);
    }
  }
}

// The constraint hears of each token once, in order, and of no draft that was not taken.
TEST_F(EngineTest, DraftsKeepToTheConstraint) {
  const auto run = [&](const char* algorithm, EngineStats& stats) {
    EngineConfig config;
    config.speculative_algorithm = algorithm;
    config.speculative_num_steps = 4;
    const auto engine = make(config, 300);
    model->cycle = 7;
    Inbox inbox;
    Request request = request_of({4, 50, 51}, 1000, inbox);
    request.constraint = std::make_shared<FakeConstraint>(FakeModel::kVocabSize, 3, 200);
    EXPECT_TRUE(engine->submit(std::move(request)));
    const auto outputs = inbox.wait_for_end();
    EXPECT_EQ(outputs.back().finish_reason, FinishReason::stop);
    stats = engine->stats();
    return tokens_of(outputs);
  };
  EngineStats plain_stats, stats;
  const auto plain = run("", plain_stats);
  EXPECT_EQ(plain.size(), 200u) << "the constraint ends it";
  EXPECT_EQ(run("NGRAM", stats), plain);
  EXPECT_GT(stats.accepted_draft_tokens_total, 0);
}

TEST_F(EngineTest, ConfigurationErrorsNameTheFlag) {
  const auto message = [](EngineConfig config) {
    auto engine = Engine::create(std::make_unique<FakeModel>(), config);
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_NE(message({.page_size = 0}).find("--page-size"), std::string::npos);
  EXPECT_NE(message({.mem_fraction_static = 1.5}).find("--mem-fraction-static"), std::string::npos);
  EXPECT_NE(message({.chunked_prefill_size = 0}).find("--chunked-prefill-size"), std::string::npos);
  EngineConfig config;
  config.speculative_algorithm = "EAGLE";
  EXPECT_NE(message(config).find("--speculative-algorithm EAGLE"), std::string::npos);
  config.speculative_algorithm = "NGRAM";
  config.speculative_num_steps = 9;
  EXPECT_NE(message(config).find("--speculative-num-steps is 9"), std::string::npos);
  config.speculative_num_steps = 0;
  config.speculative_algorithm = "STANDALONE";
  EXPECT_NE(message(config).find("--speculative-draft-model-path"), std::string::npos);
  config = {};
  config.speculative_num_draft_tokens = 65;
  EXPECT_NE(message(config).find("--speculative-num-draft-tokens is 65"), std::string::npos);
  config = {};
  config.speculative_algorithm = "NGRAM";
  config.speculative_eagle_topk = 2;
  EXPECT_NE(message(config).find("--speculative-eagle-topk 2: NGRAM"), std::string::npos);
  config.speculative_num_draft_tokens = 33;
  EXPECT_NE(message(config).find("--speculative-num-draft-tokens is 33"), std::string::npos)
      << "a tree larger than a step";
  for (const int32_t topk : {0, 9}) {
    config = {};
    config.speculative_eagle_topk = topk;
    EXPECT_NE(message(config).find("--speculative-eagle-topk is"), std::string::npos);
  }
  config = {};
  config.context_length = 100000;
  EXPECT_NE(message(config).find("--context-length 100000"), std::string::npos);
}

TEST_F(EngineTest, AProfileHoldsTheStepsBetweenStartAndStop) {
  auto engine = make();
  const auto generate = [&](int32_t count) {
    Inbox inbox;
    ASSERT_TRUE(engine->submit(request_of({1, 2, 3}, count, inbox)));
    inbox.wait_for_end();
  };
  generate(2);
  EXPECT_FALSE(engine->stop_profile());
  ASSERT_TRUE(engine->start_profile(0));
  EXPECT_FALSE(engine->start_profile(0));
  generate(4);
  const auto profile = engine->stop_profile();
  ASSERT_TRUE(profile);
  EXPECT_EQ((*profile)->num_steps(), 4);
  EXPECT_EQ(traced_steps(**profile), 4);
  EXPECT_FALSE(engine->stop_profile());
  generate(2);
  EXPECT_EQ(traced_steps(**profile), 4);
}

TEST_F(EngineTest, AProfileEndsAfterTheStepsThatItWasAskedFor) {
  auto engine = make();
  ASSERT_TRUE(engine->start_profile(3));
  Inbox inbox;
  ASSERT_TRUE(engine->submit(request_of({1, 2, 3}, 8, inbox)));
  inbox.wait_for_end();
  const auto profile = engine->stop_profile();
  ASSERT_TRUE(profile);
  EXPECT_EQ((*profile)->num_steps(), 3);
  EXPECT_EQ(traced_steps(**profile), 3);
}

}  // namespace
}  // namespace tw
