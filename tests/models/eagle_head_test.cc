// EAGLE-3's head against a plain one in PyTorch (tools/golden/make_eagle3_golden.py), what its
// guesses may do to an engine's output (nothing), and heads that do not fit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "models/changed_checkpoint.h"
#include "models/golden_file.h"
#include "models/next_token_reference.h"
#include "models/real_model.h"
#include "models/tensor_parallel.h"
#include "weights/memory_checkpoint.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using testing_support::ChangedCheckpoint;
using testing_support::expect_equals_reference;
using testing_support::golden_folder;
using testing_support::GoldenFile;
using testing_support::greedy;
using testing_support::MemoryCheckpoint;
using testing_support::MemoryTensor;

constexpr const char* kGolden = "eagle3-tiny-llama3";
class EagleHeadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models/tiny-llama3";
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is missing; run tools/proxy/make_proxy.py --tests";
    }
    auto opened = Checkpoint::open(path);
    ASSERT_TRUE(opened) << opened.error().message;
    checkpoint_ = std::move(*opened);
    for (MemoryTensor& tensor :
         testing_support::read_tensors(golden_folder() / (std::string(kGolden) + ".safetensors"))) {
      constexpr std::string_view kPrefix = "head.";
      if (tensor.name == "config") {
        auto config = parse_json(
            {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()}, "config");
        ASSERT_TRUE(config) << config.error().message;
        config_ = std::move(*config);
      } else if (tensor.name.starts_with(kPrefix)) {
        tensor.name.erase(0, kPrefix.size());
        tensors_.push_back(std::move(tensor));
      }
    }
  }

  MemoryTensor& tensor(std::string_view name) {
    return *std::ranges::find(tensors_, name, &MemoryTensor::name);
  }

  // With the head of tensors_ and config_.
  Expected<std::unique_ptr<Model>> load(int num_ranks, ActivationPrecision precision,
                                        bool with_head = true) {
    teams_ = std::make_unique<TeamGroup>(std::vector<int>(static_cast<size_t>(num_ranks), 1));
    memory_ = std::make_unique<MemoryCheckpoint>(tensors_);
    head_ = std::make_unique<ChangedCheckpoint>(*memory_, config_);
    WeightLoader loader(*checkpoint_, teams_->team(0), {*usable_cpu_features(), precision});
    if (with_head) loader.eagle_head = head_.get();
    return load_model(loader, *teams_);
  }

  std::string refusal() {
    const auto model = load(1, ActivationPrecision::bf16);
    return model ? "" : model.error().message;
  }

  std::unique_ptr<TeamGroup> teams_;
  std::unique_ptr<Checkpoint> checkpoint_, memory_, head_;
  std::vector<MemoryTensor> tensors_;
  Json config_;
};

TEST_F(EagleHeadTest, LogitsAndStatesEqualTheReferenceByOneAndSeveralRanks) {
  const GoldenFile golden(kGolden);
  ASSERT_TRUE(golden.is_open());
  for (const int num_ranks : {1, 2}) {
    for (const auto precision : {ActivationPrecision::bf16, ActivationPrecision::f32}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", num_ranks,
                               precision == ActivationPrecision::bf16 ? "bf16" : "f32"));
      auto model = load(num_ranks, precision);
      ASSERT_TRUE(model) << model.error().message;
      expect_equals_reference(**model, golden, precision);
    }
  }
}

TEST_F(EagleHeadTest, ItsNumbersStandForTokens) {
  auto model = load(2, ActivationPrecision::bf16);
  ASSERT_TRUE(model) << model.error().message;
  const std::span<const int32_t> ids = (*model)->next_token_model()->token_ids();
  ASSERT_EQ(ids.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(ids));
  EXPECT_GT(ids.back(), 400);
}

TEST_F(EagleHeadTest, GuessesChangeNothing) {
  const std::vector<std::vector<TokenId>> prompts = {{5, 6, 7}, std::vector<TokenId>(40, 9), {8}};
  const auto run = [&](bool with_head, int num_ranks, int32_t topk = 1) {
    auto model = load(num_ranks, ActivationPrecision::bf16, with_head);
    EXPECT_TRUE(model) << model.error().message;
    EngineConfig config;
    config.max_total_tokens = 1024;
    config.chunked_prefill_size = 16;
    if (with_head) {
      config.speculative_algorithm = "EAGLE3";
      config.speculative_num_steps = 3;
      config.speculative_eagle_topk = topk;
    }
    auto engine = Engine::create(std::move(*model), config);
    EXPECT_TRUE(engine) << engine.error().message;
    auto outputs = greedy(**engine, prompts, 24);
    EXPECT_EQ((*engine)->stats().draft_tokens_total > 0, with_head);
    return outputs;
  };
  EXPECT_EQ(run(true, 1), run(false, 1));
  EXPECT_EQ(run(true, 2), run(false, 2));
  EXPECT_EQ(run(true, 2, 3), run(false, 2)) << "trees";
}

TEST_F(EagleHeadTest, WhatDoesNotFitIsNamed) {
  const Json right = config_;
  const auto with = [&](const char* field, const Json& value) {
    config_ = right;
    config_[field] = value;
    return refusal();
  };
  const auto names = [](const std::string& message, const char* what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  names(with("architectures", {"LlamaForCausalLM"}), "no EAGLE-3 head");
  names(with("vocab_size", 516), "vocab_size is 516, and 517 in the model");
  names(with("hidden_size", 128), "hidden_size is 128, and 144 in the model");
  names(with("num_hidden_layers", 2), "num_hidden_layers");
  names(with("draft_vocab_size", 518), "draft_vocab_size");
  names(with("draft_vocab_size", 99), "lm_head");
  for (const Json& layers : {Json{0, 0}, Json{0, 2}, Json::array()}) {
    names(with("eagle_config", {{"eagle_aux_hidden_state_layer_ids", layers}}),
          "eagle_aux_hidden_state_layer_ids");
  }
  // By default it would see layers 2, 1 and 0; fc has room for two.
  names(with("eagle_config", nullptr), "fc");
  config_ = right;

  const auto intact = tensors_;
  for (const char* name :
       {"fc.weight", "midlayer.hidden_norm.weight", "midlayer.self_attn.q_proj.weight",
        "midlayer.mlp.down_proj.weight", "norm.weight", "lm_head.weight", "d2t"}) {
    tensor(name).name = "other";
    names(refusal(), std::string(name).substr(0, std::string_view(name).rfind('.')).c_str());
    tensors_ = intact;
  }
  tensor("d2t").set<int64_t>(3, -4);
  names(refusal(), "d2t has -4 at 3");
  tensors_ = intact;
  tensor("d2t").set<int64_t>(99, 517 - 99);
  names(refusal(), "d2t has 418 at 99");
}

}  // namespace
}  // namespace tw
