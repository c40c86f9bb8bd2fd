// What families make of their configurations: refusals that name the field, defaults of fields that
// are left out, and the language models of multimodal checkpoints.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/changed_checkpoint.h"
#include "models/forward_runner.h"
#include "models/registry.h"

namespace tw {
namespace {

using testing_support::ChangedCheckpoint;
using testing_support::ForwardRunner;

class FamilyConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder_)) {
      GTEST_SKIP() << folder_ << " is missing; run tools/proxy/make_proxy.py --tests";
    }
  }

  std::unique_ptr<Checkpoint> open(const std::string& name) {
    auto checkpoint = Checkpoint::open(folder_ / name);
    EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().message);
    return checkpoint ? std::move(*checkpoint) : nullptr;
  }

  Expected<std::unique_ptr<Model>> load(const Checkpoint& checkpoint) {
    return load_model(
        {checkpoint, team_, {*usable_cpu_features(), kernels::ActivationPrecision::f32}});
  }

  std::vector<float> logits(const Checkpoint& checkpoint) {
    auto model = load(checkpoint);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    if (!model) return {};
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 40; ++i) tokens.push_back(i * 41 % 250);
    return ForwardRunner(**model, 64, 64).run(tokens);
  }

  // The message with which a model with one field changed is refused.
  std::string refusal(const std::string& name, const char* field, Json value) {
    const auto checkpoint = open(name);
    if (!checkpoint) return "";
    Json config = checkpoint->config();
    config[field] = std::move(value);
    const auto model = load(ChangedCheckpoint(*checkpoint, config));
    EXPECT_FALSE(model) << name << " with another " << field;
    return model ? "" : model.error().message;
  }

  void expect_refused(const std::string& name, const char* field, Json value, const char* words) {
    const std::string message = refusal(name, field, std::move(value));
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message << "\nlacks " << words;
  }

  const std::filesystem::path folder_ = std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models";
  ThreadTeam team_{2};
};

TEST_F(FamilyConfig, UnsupportedValuesAreNamed) {
  expect_refused("tiny-qwen2", "hidden_act", "relu", "hidden_act relu");
  expect_refused("tiny-gemma2", "hidden_activation", "relu2", "hidden_act relu2");
  expect_refused("tiny-ministral", "layer_types",
                 {"full_attention", "linear_attention", "full_attention"},
                 "linear_attention for layer 1");
  expect_refused("tiny-ministral", "sliding_window", nullptr, "no sliding_window");
  expect_refused("tiny-gemma3", "use_bidirectional_attention", true, "use_bidirectional_attention");
  expect_refused("tiny-gemma3", "sliding_window_pattern", 0, "sliding_window_pattern is 0");
  expect_refused("tiny-qwen2", "use_sliding_window", "yes", "use_sliding_window is \"yes\"");
  expect_refused("tiny-smollm3", "no_rope_layers", {1, 0}, "no_rope_layers");
  expect_refused("tiny-phi3", "rope_scaling", {{"type", "magic"}}, "rope type magic");
  expect_refused("tiny-qwen3", "head_dim", 20, "head_dim is 20");
  expect_refused("tiny-llama4", "layer_types",
                 {"full_attention", "sliding_attention", "full_attention", "full_attention"},
                 "sliding_attention for layer 1");
  expect_refused("tiny-llama4", "attn_temperature_tuning", "yes", "attn_temperature_tuning");
  expect_refused("tiny-llama4", "attention_chunk_size", -1, "attention_chunk_size is -1");
  expect_refused("tiny-llama4", "moe_layers", "all", "moe_layers");
  expect_refused("tiny-qwen3.5", "layer_types",
                 {"full_attention", "sliding_attention", "full_attention", "full_attention"},
                 "sliding_attention for layer 1; known are full_attention and linear_attention");
  expect_refused("tiny-qwen3-next", "linear_conv_kernel_dim", 3, "linear_conv_kernel_dim is 3");
  expect_refused("tiny-qwen3-next", "linear_num_value_heads", 3, "3 value heads over 2 key heads");
  expect_refused("tiny-qwen3-next", "linear_value_head_dim", 40, "values of 40 dimensions");
  expect_refused("tiny-qwen3-next", "linear_key_head_dim", 32, "in_proj_qkvz");
  expect_refused("tiny-qwen3-next", "hidden_act", "gelu", "hidden_act is gelu");
}

TEST_F(FamilyConfig, WhatMayBeLeftOutHasTransformersDefaults) {
  for (const auto& [name, field] : std::initializer_list<std::pair<const char*, const char*>>{
           {"tiny-gemma", "tie_word_embeddings"},
           {"tiny-gemma3", "rope_theta"},
           {"tiny-gemma3", "tie_word_embeddings"},
           {"tiny-glm4", "partial_rotary_factor"},
           {"tiny-olmo3", "rope_theta"},
           {"tiny-smollm3", "rope_theta"}}) {
    SCOPED_TRACE(std::string(name) + " without " + field);
    const auto checkpoint = open(name);
    ASSERT_TRUE(checkpoint);
    Json config = checkpoint->config();
    ASSERT_TRUE(config.contains(field));
    config.erase(field);
    EXPECT_EQ(logits(ChangedCheckpoint(*checkpoint, config)), logits(*checkpoint));
  }
}

TEST_F(FamilyConfig, Llama4sFieldsHaveSeveralSpellings) {
  const auto checkpoint = open("tiny-llama4");
  ASSERT_TRUE(checkpoint);
  const std::vector<float> expected = logits(*checkpoint);
  Json config = checkpoint->config();
  config["attn_temperature_tuning"] = 4;
  config["moe_layers"] = {1, 3};
  config["no_rope_layers"] = {1, 1, 1, 0};
  config["layer_types"] = {"chunked_attention", "chunked_attention", "chunked_attention",
                           "full_attention"};
  EXPECT_EQ(logits(ChangedCheckpoint(*checkpoint, config)), expected);
  config["attn_temperature_tuning"] = 0;
  EXPECT_NE(logits(ChangedCheckpoint(*checkpoint, config)), expected);
}

TEST_F(FamilyConfig, TheHybridsOfAMultimodalCheckpointAreFound) {
  for (const auto& [name, architecture] :
       {std::pair("tiny-qwen3.5", "Qwen3_5ForConditionalGeneration"),
        std::pair("tiny-qwen3.5-moe", "Qwen3_5MoeForConditionalGeneration")}) {
    const auto checkpoint = open(name);
    ASSERT_TRUE(checkpoint);
    Json text = checkpoint->config();
    text.erase("layer_types");  // what the default interval of 4 says
    const Json config = {{"architectures", {architecture}},
                         {"text_config", text},
                         {"vision_config", {{"hidden_size", 8}}}};
    const ChangedCheckpoint multimodal(*checkpoint, config, [](const std::string& tensor) {
      const std::string prefix = "model.";
      return tensor.starts_with(prefix) ? "model.language_model." + tensor.substr(prefix.size())
                                        : tensor;
    });
    EXPECT_EQ(logits(multimodal), logits(*checkpoint));
  }
}

TEST_F(FamilyConfig, TheLanguageModelOfAMultimodalCheckpointIsFound) {
  const auto checkpoint = open("tiny-gemma3");
  ASSERT_TRUE(checkpoint);
  const Json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                       {"model_type", "gemma3"},
                       {"text_config", checkpoint->config()},
                       {"vision_config", {{"hidden_size", 8}}}};
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    const ChangedCheckpoint multimodal(*checkpoint, config, [&](const std::string& name) {
      return prefix + name.substr(std::string("model.").size());
    });
    EXPECT_EQ(logits(multimodal), logits(*checkpoint));
  }
}

}  // namespace
}  // namespace tw
