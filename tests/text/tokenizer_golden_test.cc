// Real tokenizers against what the reference library gives.
#include <gtest/gtest.h>

#include "text/golden_data.h"

namespace tw {
namespace {

using test::cached_tokenizer;
using test::read_golden;

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, EncodesAsTheReference) {
  const Tokenizer* tokenizer = cached_tokenizer(GetParam());
  TW_REQUIRE_ASSET(tokenizer);
  const Json texts = read_golden("texts.json")["texts"];
  const Json golden = read_golden(std::string(GetParam()) + ".json");
  EXPECT_EQ(tokenizer->vocab_size(), golden["vocab_size"].get<int64_t>());
  EXPECT_GE(golden["ids"].size(), 50u);
  for (const auto& [name, ids] : golden["ids"].items()) {
    const auto encoded = tokenizer->encode(texts[name].get<std::string>(), false);
    ASSERT_TRUE(encoded) << encoded.error().message;
    EXPECT_EQ(*encoded, ids.get<std::vector<int32_t>>()) << name;
  }
  for (const auto& [name, ids] : golden["with_special_tokens"].items()) {
    const auto encoded = tokenizer->encode(texts[name].get<std::string>(), true);
    ASSERT_TRUE(encoded) << encoded.error().message;
    EXPECT_EQ(*encoded, ids.get<std::vector<int32_t>>()) << name;
  }
}

TEST_P(TokenizerGolden, EncodesALongTextAsTheReference) {
  const Tokenizer* tokenizer = cached_tokenizer(GetParam());
  TW_REQUIRE_ASSET(tokenizer);
  const Json golden = read_golden(std::string(GetParam()) + ".json")["long_text"];
  const auto ids = tokenizer->encode(test::long_text(read_golden("texts.json")["texts"]), false);
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(ids->size(), golden["count"].get<size_t>());
  EXPECT_EQ(test::hash_ids(*ids), golden["hash"].get<std::string>());
}

TEST_P(TokenizerGolden, DecodesAsTheReference) {
  const Tokenizer* tokenizer = cached_tokenizer(GetParam());
  TW_REQUIRE_ASSET(tokenizer);
  for (const Json& entry : read_golden(std::string(GetParam()) + ".json")["decodings"]) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    const auto text = tokenizer->decode(ids, false);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, entry["text"].get<std::string>()) << dump_json(entry["ids"]);
    const auto without_special = tokenizer->decode(ids, true);
    ASSERT_TRUE(without_special) << without_special.error().message;
    EXPECT_EQ(*without_special, entry["without_special"].get<std::string>());
  }
}

TEST_P(TokenizerGolden, ItsJsonRecreatesIt) {
  const Tokenizer* tokenizer = cached_tokenizer(GetParam());
  TW_REQUIRE_ASSET(tokenizer);
  const auto again = Tokenizer::from_json(tokenizer->to_json(), "to_json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size());
  for (const auto& [name, text] : read_golden("texts.json")["texts"].items()) {
    EXPECT_EQ(*again->encode(text.get<std::string>(), true),
              *tokenizer->encode(text.get<std::string>(), true))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Npm, TokenizerGolden, testing::ValuesIn(test::kTokenizers),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tw
