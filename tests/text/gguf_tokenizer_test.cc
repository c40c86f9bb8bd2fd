// Tokenizers built from GGUF vocabularies against the Hugging Face ones.
#include "text/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "text/golden_data.h"

namespace tw {
namespace {

using test::cached_tokenizer;
using test::read_golden;

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4;

// What a converter to GGUF makes of a tokenizer.json with a byte-level BPE. Its vocabulary is one
// large object: too large for Json, which looks up keys one by one.
GgufVocabulary vocabulary_of(const nlohmann::json& tokenizer, std::string pre, int64_t vocab_size) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = std::move(pre);
  vocabulary.tokens.resize(static_cast<size_t>(vocab_size));
  vocabulary.token_types.resize(static_cast<size_t>(vocab_size), kNormal);
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    vocabulary.tokens[id.get<size_t>()] = token;
  }
  for (const nlohmann::json& added : tokenizer["added_tokens"]) {
    const auto id = added["id"].get<size_t>();
    vocabulary.tokens[id] = added["content"].get<std::string>();
    vocabulary.token_types[id] = added["special"].get<bool>() ? kControl : kUser;
  }
  for (const nlohmann::json& merge : tokenizer["model"]["merges"]) {
    vocabulary.merges.push_back(merge.is_string()
                                    ? merge.get<std::string>()
                                    : fmt::format("{} {}", merge[0].get_ref<const std::string&>(),
                                                  merge[1].get_ref<const std::string&>()));
  }
  return vocabulary;
}

struct NamedPre {
  const char* tokenizer;
  const char* pre;
  const char* bos;
};

class GgufByteLevel : public testing::TestWithParam<NamedPre> {};

TEST_P(GgufByteLevel, EqualsTheHuggingFaceTokenizer) {
  const Tokenizer* original = cached_tokenizer(GetParam().tokenizer);
  TW_REQUIRE_ASSET(original);
  const auto json =
      nlohmann::json::parse(*test::read_asset(GetParam().tokenizer, "tokenizer.json"));
  GgufVocabulary vocabulary = vocabulary_of(json, GetParam().pre, original->vocab_size());
  vocabulary.bos_token_id = original->token_to_id(GetParam().bos);
  const auto built = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_EQ(built->vocab_size(), original->vocab_size());

  const Json texts = read_golden("texts.json")["texts"];
  const Json golden = read_golden(std::string(GetParam().tokenizer) + ".json");
  for (const auto& [name, ids] : golden["ids"].items()) {
    EXPECT_EQ(*built->encode(texts[name].get<std::string>(), false),
              ids.get<std::vector<int32_t>>())
        << name;
  }
  const auto long_ids = *built->encode(test::long_text(texts), false);
  EXPECT_EQ(test::hash_ids(long_ids), golden["long_text"]["hash"].get<std::string>());
  for (const Json& entry : golden["decodings"]) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(*built->decode(ids, false), entry["text"].get<std::string>());
    EXPECT_EQ(*built->decode(ids, true), entry["without_special"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Npm, GgufByteLevel,
                         testing::Values(NamedPre{"llama3_1", "llama-bpe", "<|begin_of_text|>"},
                                         NamedPre{"qwen3", "qwen2", "<|endoftext|>"},
                                         NamedPre{"deepseek_v3", "deepseek-v3",
                                                  "<\uff5cbegin\u2581of\u2581sentence\uff5c>"},
                                         NamedPre{"gptoss", "gpt-4o", "<|startoftext|>"}),
                         [](const auto& test) { return std::string(test.param.tokenizer); });

GgufVocabulary sentencepiece_vocabulary() {
  const Json golden = read_golden("sentencepiece.json");
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = golden["tokens"].get<std::vector<std::string>>();
  vocabulary.scores = golden["scores"].get<std::vector<float>>();
  vocabulary.token_types = golden["token_types"].get<std::vector<int32_t>>();
  vocabulary.unk_token_id = 0;
  vocabulary.bos_token_id = 1;
  vocabulary.eos_token_id = 2;
  return vocabulary;
}

TEST(GgufSentencePiece, EqualsSentencePiece) {
  const auto tokenizer = Tokenizer::from_gguf(sentencepiece_vocabulary());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const Json texts = read_golden("texts.json")["texts"];
  const Json golden = read_golden("sentencepiece.json");
  EXPECT_GE(golden["ids"].size(), 45u);
  for (const auto& [name, ids] : golden["ids"].items()) {
    EXPECT_EQ(*tokenizer->encode(texts[name].get<std::string>(), false),
              ids.get<std::vector<int32_t>>())
        << name;
    EXPECT_EQ(*tokenizer->decode(ids.get<std::vector<int32_t>>(), false),
              golden["decoded"][name].get<std::string>())
        << name;
  }
}

TEST(GgufSentencePiece, PutsBosAndEosAroundTheText) {
  GgufVocabulary vocabulary = sentencepiece_vocabulary();
  const auto with_bos = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(with_bos);
  const auto plain = *with_bos->encode("in art", false);
  auto expected = plain;
  expected.insert(expected.begin(), 1);
  EXPECT_EQ(*with_bos->encode("in art", true), expected) << "llama vocabularies want BOS";
  vocabulary.add_eos_token = true;
  expected.push_back(2);
  EXPECT_EQ(*Tokenizer::from_gguf(vocabulary)->encode("in art", true), expected);
  vocabulary.add_eos_token = false;
  vocabulary.add_bos_token = false;
  EXPECT_EQ(*Tokenizer::from_gguf(vocabulary)->encode("in art", true), plain);
}

TEST(GgufSentencePiece, KnowsSpecialAndUserTokens) {
  const auto tokenizer = Tokenizer::from_gguf(sentencepiece_vocabulary());
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(3));
  const auto ids = *tokenizer->encode("</s>[TOOL]", false);
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(*tokenizer->decode(ids, true), "[TOOL]");
}

TEST(GgufSentencePiece, AddsNoSpaceWhenTold) {
  GgufVocabulary vocabulary = sentencepiece_vocabulary();
  vocabulary.add_space_prefix = false;
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(tokenizer);
  const auto ids = *tokenizer->encode("in", false);
  EXPECT_EQ(ids, (std::vector<int32_t>{*tokenizer->token_to_id("in")}));
  EXPECT_EQ(*tokenizer->decode(*tokenizer->encode(" in", false), false), " in");
}

GgufVocabulary small_byte_level() {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  vocabulary.tokens = {"a", "b", "ab", "\u0120", "<end>", "\u0120a"};
  vocabulary.token_types = {kNormal, kNormal, kNormal, kNormal, kControl, kNormal};
  vocabulary.merges = {"a b", "\u0120 a"};
  vocabulary.bos_token_id = 4;
  return vocabulary;
}

TEST(GgufByteLevelSmall, Encodes) {
  const auto tokenizer = Tokenizer::from_gguf(small_byte_level());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("ab a<end>", true), (std::vector<int32_t>{2, 5, 4}));
  EXPECT_EQ(*tokenizer->decode(std::vector<int32_t>{2, 5, 4}, true), "ab a");
}

TEST(GgufByteLevelSmall, KeepsTheFirstOfEqualTokens) {
  GgufVocabulary vocabulary = small_byte_level();
  vocabulary.tokens.push_back("ab");
  vocabulary.token_types.push_back(kNormal);
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("ab", false), (std::vector<int32_t>{2}));
}

TEST(GgufByteLevelSmall, EscapesWhatJsonWants) {
  GgufVocabulary vocabulary = small_byte_level();
  vocabulary.tokens.push_back("\"\\\n\x01\u00e9");
  vocabulary.token_types.push_back(kUser);
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("a\"\\\n\x01\u00e9", false), (std::vector<int32_t>{0, 6}));
}

struct BadVocabulary {
  const char* name;
  void (*spoil)(GgufVocabulary&);
  ErrorCode code;
  const char* message;
};

class GgufErrors : public testing::TestWithParam<BadVocabulary> {};

TEST_P(GgufErrors, NameTheCulprit) {
  GgufVocabulary vocabulary = small_byte_level();
  GetParam().spoil(vocabulary);
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, GetParam().code);
  EXPECT_NE(tokenizer.error().message.find(GetParam().message), std::string::npos)
      << tokenizer.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufErrors,
    testing::Values(
        BadVocabulary{"model", [](GgufVocabulary& v) { v.model = std::string("bert"); },
                      ErrorCode::unsupported, "\"bert\""},
        BadVocabulary{"pre", [](GgufVocabulary& v) { v.pre = std::string("odd"); },
                      ErrorCode::unsupported,
                      "known are chatglm-bpe, deepseek-r1-qwen, deepseek-v3, default"},
        BadVocabulary{"empty", [](GgufVocabulary& v) { v.tokens.clear(); }, ErrorCode::corrupt_data,
                      "tokens is empty"},
        BadVocabulary{"utf8", [](GgufVocabulary& v) { v.tokens[1] = std::string("\xff"); },
                      ErrorCode::corrupt_data, "token 1"},
        BadVocabulary{"types", [](GgufVocabulary& v) { v.token_types.pop_back(); },
                      ErrorCode::corrupt_data, "token_type has 5 entries"},
        BadVocabulary{"scores", [](GgufVocabulary& v) { v.scores = {1}; }, ErrorCode::corrupt_data,
                      "scores has 1 entries"},
        BadVocabulary{"no_scores", [](GgufVocabulary& v) { v.model = std::string("llama"); },
                      ErrorCode::corrupt_data, "scores has 0 entries"},
        BadVocabulary{"merge", [](GgufVocabulary& v) { v.merges[1] = std::string("ab"); },
                      ErrorCode::corrupt_data, "merges[1]"},
        BadVocabulary{"merge_of_unknown",
                      [](GgufVocabulary& v) { v.merges[1] = std::string("a z"); },
                      ErrorCode::corrupt_data, "z"},
        BadVocabulary{"bos", [](GgufVocabulary& v) { v.bos_token_id = 6; }, ErrorCode::corrupt_data,
                      "bos_token_id is 6"},
        BadVocabulary{"negative_bos", [](GgufVocabulary& v) { v.bos_token_id = -1; },
                      ErrorCode::corrupt_data, "bos_token_id is -1"},
        BadVocabulary{"missing_bos",
                      [](GgufVocabulary& v) {
                        v.bos_token_id.reset();
                        v.add_bos_token = true;
                      },
                      ErrorCode::corrupt_data, "add_bos_token"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tw
