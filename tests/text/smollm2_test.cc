// The tokenizer of the small real model, read from its GGUF file, against the reference library
// with the rules of HuggingFaceTB/SmolLM2-135M-Instruct.
#include <gtest/gtest.h>

#include <filesystem>

#include "text/chat_template.h"
#include "text/golden_data.h"
#include "weights/checkpoint.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

const std::filesystem::path kModel =
    std::filesystem::path(TW_SOURCE_DIR) / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf";

TEST(SmolLm2, TokenizesAsTheReference) {
  TW_REQUIRE_ASSET(std::filesystem::exists(kModel));
  const auto checkpoint = Checkpoint::open(kModel);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto source = (*checkpoint)->tokenizer_source();
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_TRUE(source->gguf);
  const auto tokenizer = Tokenizer::from_gguf(*source->gguf);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;

  const Json texts = test::read_golden("texts.json")["texts"];
  const Json golden = test::read_golden("smollm2.json");
  EXPECT_EQ(tokenizer->vocab_size(), golden["vocab_size"].get<int64_t>());
  for (const auto& [name, ids] : golden["ids"].items()) {
    EXPECT_EQ(*tokenizer->encode(texts[name].get<std::string>(), false),
              ids.get<std::vector<int32_t>>())
        << name;
  }
  for (const auto& [name, ids] : golden["with_special_tokens"].items()) {
    EXPECT_EQ(*tokenizer->encode(texts[name].get<std::string>(), true),
              ids.get<std::vector<int32_t>>())
        << name;
  }
  const auto long_ids = *tokenizer->encode(test::long_text(texts), false);
  EXPECT_EQ(long_ids.size(), golden["long_text"]["count"].get<size_t>());
  EXPECT_EQ(test::hash_ids(long_ids), golden["long_text"]["hash"].get<std::string>());
  for (const Json& entry : golden["decodings"]) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(*tokenizer->decode(ids, false), entry["text"].get<std::string>());
    EXPECT_EQ(*tokenizer->decode(ids, true), entry["without_special"].get<std::string>());
  }
}

TEST(SmolLm2, ItsTemplateAsksInItsTokens) {
  TW_REQUIRE_ASSET(std::filesystem::exists(kModel));
  const auto checkpoint = Checkpoint::open(kModel);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto source = (*checkpoint)->chat_template();
  ASSERT_TRUE(source);
  const auto compiled = ChatTemplate::compile(*source, (*checkpoint)->tokenizer_config());
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto prompt =
      compiled->render(Json::array({{{"role", "user"}, {"content", "Hi"}}}), nullptr, true);
  ASSERT_TRUE(prompt) << prompt.error().message;
  const auto tokenizer = Tokenizer::from_gguf(*(*checkpoint)->tokenizer_source()->gguf);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = *tokenizer->encode(*prompt, false);
  EXPECT_EQ(ids.front(), tokenizer->token_to_id("<|im_start|>"));
  EXPECT_EQ(*tokenizer->decode(ids, false), *prompt);
  EXPECT_TRUE(prompt->ends_with("<|im_start|>assistant\n")) << *prompt;
}

}  // namespace
}  // namespace tw
