// Adapters on disk: what is read of PEFT's files, and what is refused.
#include "weights/lora_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "weights/lora_folder.h"

namespace tw {
namespace {

using testing_support::LoraFolder;

constexpr const char* kLayer = "base_model.model.model.layers.0.self_attn.q_proj";

class LoraCheckpointTest : public ::testing::Test {
 protected:
  Expected<LoraCheckpoint> open(const Json& config,
                                const std::vector<LoraFolder::Tensor>& tensors) {
    return LoraCheckpoint::open(folder_.write(config, tensors));
  }
  Expected<LoraCheckpoint> open_changed(const char* field, const Json& value) {
    Json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 8}, {"bias", "none"}};
    config[field] = value;
    return open(config, LoraFolder::pair_of(kLayer));
  }
  std::string refusal(const Expected<LoraCheckpoint>& opened) {
    EXPECT_FALSE(opened);
    return opened ? "" : opened.error().message;
  }

  LoraFolder folder_{"lora"};
};

TEST_F(LoraCheckpointTest, ReadsPairsAndScales) {
  const auto plain = open_changed("use_dora", false);
  ASSERT_TRUE(plain) << plain.error().message;
  ASSERT_EQ(plain->modules().size(), 1u);
  const auto& [name, module] = *plain->modules().begin();
  EXPECT_EQ(name, "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(module.rank, 2);
  EXPECT_EQ(module.scale, 4.0f);
  EXPECT_EQ(module.b->shape, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(plain->max_rank(), 2);
  EXPECT_FLOAT_EQ(open_changed("use_rslora", true)->modules().begin()->second.scale,
                  8 / std::sqrt(2.0f));
  EXPECT_EQ(open_changed("alpha_pattern", {{"q_proj", 3}})->modules().begin()->second.scale, 1.5f);
  EXPECT_TRUE(open_changed("rank_pattern", {{"q_proj", 2}}));
}

TEST_F(LoraCheckpointTest, WhatIsNotComputedIsRefused) {
  const std::pair<const char*, Json> fields[] = {{"peft_type", "IA3"},
                                                 {"bias", "all"},
                                                 {"use_dora", true},
                                                 {"fan_in_fan_out", true},
                                                 {"modules_to_save", Json::array({"lm_head"})}};
  for (const auto& [field, value] : fields) {
    const std::string message = refusal(open_changed(field, value));
    EXPECT_NE(message.find(fmt::format("adapter_config.json: {} is {}", field, dump_json(value))),
              std::string::npos)
        << message;
  }
  EXPECT_NE(
      refusal(open_changed("alpha_pattern", {{"k_proj", 3}})).find("alpha_pattern[\"k_proj\"]"),
      std::string::npos);
  EXPECT_NE(refusal(open_changed("lora_alpha", "8")).find("lora_alpha"), std::string::npos);
  EXPECT_NE(refusal(open_changed("r", 0)).find("r"), std::string::npos);
  EXPECT_NE(refusal(open_changed("r", 3)).find("r is 3, but"), std::string::npos);
}

TEST_F(LoraCheckpointTest, TensorsThatAreNoPairsAreRefused) {
  const Json config = {{"r", 2}, {"lora_alpha", 8}};
  auto tensors = LoraFolder::pair_of(kLayer);
  tensors.pop_back();
  EXPECT_NE(refusal(open(config, tensors)).find("q_proj.lora_B.weight is missing"),
            std::string::npos);
  tensors.push_back({std::string(kLayer) + ".lora_B.weight", "4,3", 12});
  EXPECT_NE(refusal(open(config, tensors)).find("lora_A is [2, 4] and lora_B [4, 3]"),
            std::string::npos);
  EXPECT_NE(refusal(open(config, {{"model.embed_tokens.lora_embedding_A", "2,4", 8}}))
                .find("model.embed_tokens.lora_embedding_A"),
            std::string::npos);
  EXPECT_NE(refusal(open(config, {{std::string(kLayer) + ".lora_A.weight", "8", 8}}))
                .find("no matrix of floats"),
            std::string::npos);
  EXPECT_NE(refusal(open(config, {})).find("holds no tensors"), std::string::npos);
  EXPECT_NE(refusal(LoraCheckpoint::open("/nowhere")).find("/nowhere/adapter_config.json"),
            std::string::npos);
}

}  // namespace
}  // namespace tw
