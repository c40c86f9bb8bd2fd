// Several ranks compute what one does: every family and every weight format, by 2, 3 and 5 ranks,
// which divide neither heads nor blocks evenly; and the same greedy text.
//
// Tolerance: with fp32 activations only the order of sums differs, and now and then a key or value
// that lies in the middle between two bf16 numbers is rounded the other way: 1e-3 of the largest
// logit, as for other orders of sums (golden_test.cc). INT8 (W8A8) weights meet activations that
// are rounded to 8 bits by the largest of those that a rank sees, not of all: 5e-2, as for other
// ways of rounding (quantized_models_test.cc).
#include "models/tensor_parallel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/forward_runner.h"
#include "models/golden_file.h"
#include "models/logit_error.h"
#include "models/parallel_model.h"
#include "models/real_model.h"
#include "models/test_name.h"
#include "text/tokenizer.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using testing_support::ForwardRunner;
using testing_support::greedy;
using testing_support::largest_magnitude;
using testing_support::logit_error;
using testing_support::Parallel;
using testing_support::real_model_path;
using testing_support::some_tokens;
using testing_support::test_model;

std::vector<std::string> all_test_models() {
  std::vector<std::string> names;
  if (!std::filesystem::exists(test_model(""))) return {"none"};
  for (const auto& entry : std::filesystem::directory_iterator(test_model(""))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("tiny-")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class TensorParallelModels : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(test_model(GetParam()))) return;
    GTEST_SKIP() << "no models; run tools/proxy/make_proxy.py --tests";
  }

  // Why --tp refuses a model; empty if it does not.
  static std::string reason_to_refuse(const std::string& name) {
    if (name.starts_with("tiny-olmo") || name.starts_with("tiny-minimax")) {
      return "normalized over all heads";
    }
    return name.ends_with("act-order") ? "act-order" : "";
  }
};

TEST_P(TensorParallelModels, RanksComputeWhatOneDoes) {
  const std::vector<int32_t> tokens = some_tokens(60);
  const Parallel one(test_model(GetParam()), 1);
  ASSERT_TRUE(one.model) << one.model.error().message;
  const std::vector<float> expected = ForwardRunner(**one.model, 64, 32).run(tokens);
  ASSERT_EQ(expected.size(),
            tokens.size() * static_cast<size_t>((*one.model)->limits().vocab_size));
  for (const int num_ranks : {2, 3, 5}) {
    const Parallel several(test_model(GetParam()), num_ranks);
    const std::string reason = reason_to_refuse(GetParam());
    if (!reason.empty()) {
      ASSERT_FALSE(several.model);
      EXPECT_NE(several.model.error().message.find(reason), std::string::npos)
          << several.model.error().message;
      EXPECT_NE(several.model.error().message.find("--tp"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(several.model) << num_ranks << " ranks: " << several.model.error().message;
    const std::vector<float> actual = ForwardRunner(**several.model, 64, 32).run(tokens);
    ASSERT_EQ(actual.size(), expected.size());
    const double tolerance = GetParam().find("int8") != std::string::npos ? 5e-2 : 1e-3;
    EXPECT_LT(logit_error(actual, expected, largest_magnitude(expected)).relative, tolerance)
        << num_ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelModels, ::testing::ValuesIn(all_test_models()),
                         testing_support::NamedByParameter());

std::vector<std::vector<TokenId>> continuations(const std::filesystem::path& path, int num_ranks,
                                                ActivationPrecision precision,
                                                const std::vector<std::vector<TokenId>>& prompts,
                                                int32_t num_tokens) {
  Parallel parallel(path, num_ranks, precision);
  EXPECT_TRUE(parallel.model) << (parallel.model ? "" : parallel.model.error().message);
  if (!parallel.model) return {};
  EngineConfig config;
  config.max_total_tokens = 1024;
  config.chunked_prefill_size = 64;
  auto engine = Engine::create(std::move(*parallel.model), config);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  if (!engine) return {};
  return greedy(**engine, prompts, num_tokens);
}

// Dense, Mixtral and Qwen 3 mixtures, DeepSeek's latent attention, gpt-oss, a hybrid.
TEST(TensorParallelText, OfProxiesIsTheSame) {
  const std::vector<std::vector<TokenId>> prompts = {some_tokens(5), some_tokens(70)};
  for (const char* name : {"tiny-llama3", "tiny-mixtral", "tiny-qwen3-moe", "tiny-deepseek-v3",
                           "tiny-gpt-oss", "tiny-qwen3-next"}) {
    if (!std::filesystem::exists(test_model(name))) GTEST_SKIP() << name << " is missing";
    const auto expected = continuations(test_model(name), 1, ActivationPrecision::f32, prompts, 12);
    ASSERT_EQ(expected.size(), prompts.size());
    for (const int num_ranks : {2, 3}) {
      EXPECT_EQ(continuations(test_model(name), num_ranks, ActivationPrecision::f32, prompts, 12),
                expected)
          << name << " by " << num_ranks << " ranks";
    }
  }
}

// The real model: 9 heads on 3 KV heads, quantized weights. With int8 activations, a sum that
// differs in its last bit may round an activation the other way, and where the best two tokens are
// as good as equal the text goes on differently; so the activations are fp32 here.
TEST(TensorParallelText, OfTheRealModelIsTheSame) {
  auto checkpoint = Checkpoint::open(real_model_path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  auto source = (*checkpoint)->tokenizer_source();
  ASSERT_TRUE(source && source->gguf);
  auto tokenizer = Tokenizer::from_gguf(*source->gguf);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  std::vector<std::vector<TokenId>> prompts;
  for (const char* text :
       {"The capital of France is", "One, two, three, four,", "Water boils at a temperature of"}) {
    auto ids = tokenizer->encode(text, false);
    ASSERT_TRUE(ids);
    prompts.push_back(*ids);
  }
  const auto expected = continuations(real_model_path(), 1, ActivationPrecision::f32, prompts, 16);
  ASSERT_EQ(expected.size(), prompts.size());
  for (const int num_ranks : {2, 3}) {
    EXPECT_EQ(continuations(real_model_path(), num_ranks, ActivationPrecision::f32, prompts, 16),
              expected)
        << num_ranks << " ranks";
  }
}

// A profile shows the threads of all ranks.
TEST(TensorParallelTrace, HasAllRanksThreads) {
  if (!std::filesystem::exists(test_model("tiny-llama3"))) GTEST_SKIP();
  const Parallel parallel(test_model("tiny-llama3"), 2);
  ASSERT_TRUE(parallel.model);
  Model& model = **parallel.model;
  ForwardRunner runner(model, 64, 32);
  ASSERT_EQ(model.num_threads(), 3);
  StepTrace trace(model.num_threads(), 1000);
  model.set_trace(&trace);
  runner.run(some_tokens(20));
  model.set_trace(nullptr);
  for (int thread = 0; thread < 3; ++thread) {
    EXPECT_EQ(trace.events(thread).size(), trace.events(0).size()) << thread;
    EXPECT_FALSE(trace.events(thread).empty()) << thread;
  }
}

// A rank holds its part and no more: the weights' memory and the cache are divided, not copied.
TEST(TensorParallelMemory, IsDividedByRanks) {
  if (!std::filesystem::exists(test_model("tiny-llama3"))) GTEST_SKIP();
  const Parallel one(test_model("tiny-llama3"), 1), two(test_model("tiny-llama3"), 2);
  ASSERT_TRUE(one.model && two.model);
  // Two KV heads, one for each rank.
  EXPECT_EQ((*two.model)->limits().kv_bytes_per_token, (*one.model)->limits().kv_bytes_per_token);
  const Parallel three(test_model("tiny-llama3"), 3);
  ASSERT_TRUE(three.model);
  // Fewer KV heads than ranks: some are held twice.
  EXPECT_GT((*three.model)->limits().kv_bytes_per_token, (*one.model)->limits().kv_bytes_per_token);
}

}  // namespace
}  // namespace tw
