#include "weights/model_config.h"

#include <gtest/gtest.h>

namespace tw {
namespace {

Json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 100}};
}

std::string refusal(const Json& config) {
  const auto parsed = ModelConfig::parse(config, "config.json");
  EXPECT_FALSE(parsed) << dump_json(config);
  if (parsed) return "";
  EXPECT_EQ(parsed.error().message.rfind("config.json", 0), 0u) << parsed.error().message;
  return parsed.error().message;
}

Json with(const char* field, Json value) {
  Json config = llama();
  config[field] = std::move(value);
  return config;
}

TEST(ModelConfig, DefaultsAreTransformers) {
  const auto config = ModelConfig::parse(llama(), "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rms_norm_eps, 1e-6f);
  EXPECT_EQ(config->hidden_act, "silu");
  EXPECT_EQ(config->rope.rope_theta, 10000.0);
  EXPECT_EQ(config->sliding_window, 0);
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(ModelConfig, RopeInOldAndNewSpelling) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  Json old_style = with("rope_scaling", scaling);
  old_style["rope_theta"] = 500000.0;
  Json new_parameters = scaling;
  new_parameters["rope_theta"] = 500000.0;
  for (const Json& config : {old_style, with("rope_parameters", new_parameters)}) {
    const auto parsed = ModelConfig::parse(config, "config.json");
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->rope.rope_type, "llama3");
    EXPECT_EQ(parsed->rope.rope_theta, 500000.0);
    EXPECT_EQ(parsed->rope.factor, 8.0);
    EXPECT_EQ(parsed->rope.original_max_position_embeddings, 8192);
  }
  EXPECT_EQ(ModelConfig::parse(with("rope_scaling", {{"type", "linear"}, {"factor", 2}}), "c")
                ->rope.rope_type,
            "linear");
}

TEST(ModelConfig, LongRopeHasTwoListsOfDivisors) {
  Json config = with("rope_scaling",
                     {{"type", "su"}, {"short_factor", {1.0, 1.5}}, {"long_factor", {2.0, 4.0}}});
  config["max_position_embeddings"] = 4096;
  config["original_max_position_embeddings"] = 1024;
  const auto parsed = ModelConfig::parse(config, "config.json");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->rope.rope_type, "longrope");
  EXPECT_EQ(parsed->rope.factor, 4.0);
  EXPECT_EQ(parsed->rope.original_max_position_embeddings, 1024);
  EXPECT_EQ(parsed->rope.short_factor, (std::vector<double>{1.0, 1.5}));
  EXPECT_EQ(parsed->rope.long_factor, (std::vector<double>{2.0, 4.0}));
}

TEST(ModelConfig, RopeMayDifferByTypeOfLayer) {
  const Json full = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 1e6}};
  const Json sliding = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  const auto parsed = ModelConfig::parse(
      with("rope_parameters", {{"full_attention", full}, {"sliding_attention", sliding}}), "c");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->rope.rope_type, "linear");
  EXPECT_EQ(parsed->rope.rope_theta, 1e6);
  ASSERT_TRUE(parsed->sliding_rope);
  EXPECT_EQ(parsed->sliding_rope->rope_type, "default");
  EXPECT_EQ(parsed->sliding_rope->rope_theta, 5000.0);
  EXPECT_NE(refusal(with("rope_parameters", {{"linear_attention", full}})).find("linear_attention"),
            std::string::npos);
}

TEST(ModelConfig, EosIsOneOrSeveral) {
  EXPECT_EQ(ModelConfig::parse(with("eos_token_id", 7), "c")->eos_token_ids,
            (std::vector<int32_t>{7}));
  EXPECT_EQ(ModelConfig::parse(with("eos_token_id", {7, 9}), "c")->eos_token_ids,
            (std::vector<int32_t>{7, 9}));
}

TEST(ModelConfig, NoSlidingWindowIsWrittenInSeveralWays) {
  for (const Json& config : {with("sliding_window", 0), with("sliding_window", nullptr), llama()}) {
    const auto parsed = ModelConfig::parse(config, "c");
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->sliding_window, 0);
  }
  EXPECT_EQ(ModelConfig::parse(with("sliding_window", 8), "c")->sliding_window, 8);
  EXPECT_NE(refusal(with("sliding_window", -1)).find("sliding_window"), std::string::npos);
}

TEST(ModelConfig, ErrorsNameTheFieldAndWhatIsValid) {
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "vocab_size"}) {
    Json config = llama();
    config.erase(field);
    EXPECT_NE(refusal(config).find(fmt::format("{} is missing", field)), std::string::npos);
    EXPECT_NE(refusal(with(field, 0)).find(fmt::format("field {} is 0", field)), std::string::npos);
    EXPECT_NE(refusal(with(field, -5)).find(field), std::string::npos);
    EXPECT_NE(refusal(with(field, "x")).find(field), std::string::npos);
    EXPECT_NE(refusal(with(field, 1.5)).find(field), std::string::npos);
    EXPECT_NE(refusal(with(field, uint64_t{1} << 63)).find(field), std::string::npos);
  }
  EXPECT_NE(refusal(with("num_key_value_heads", 3)).find("num_key_value_heads 3"),
            std::string::npos);
  EXPECT_NE(refusal(with("hidden_size", 65)).find("hidden_size 65"), std::string::npos);
  EXPECT_NE(refusal(with("rms_norm_eps", -1)).find("rms_norm_eps"), std::string::npos);
  EXPECT_NE(refusal(with("tie_word_embeddings", 1)).find("tie_word_embeddings"), std::string::npos);
  EXPECT_NE(refusal(with("rope_scaling", "x")).find("rope_scaling"), std::string::npos);
  EXPECT_NE(refusal(with("rope_scaling", {{"rope_type", "magic"}})).find("magic"),
            std::string::npos);
  EXPECT_NE(refusal(with("rope_scaling", {{"rope_type", "linear"}})).find("factor"),
            std::string::npos);
  EXPECT_NE(refusal(with("layer_types", {"full_attention"})).find("num_hidden_layers = 2"),
            std::string::npos);
  EXPECT_NE(refusal(with("layer_types", {1, 2})).find("layer_types is 1; expected strings"),
            std::string::npos);
  EXPECT_NE(refusal(with("rope_scaling", {{"rope_type", "longrope"}, {"short_factor", {"x"}}}))
                .find("factor"),
            std::string::npos);
  EXPECT_NE(refusal(with("eos_token_id", "x")).find("eos_token_id"), std::string::npos);
}

}  // namespace
}  // namespace tw
