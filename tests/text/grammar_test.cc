#include "text/grammar.h"

#include <gtest/gtest.h>

#include <vector>

#include "text/byte_tokenizer.h"

namespace tw {
namespace {

constexpr int32_t kEnd = 256;
constexpr int32_t kVocabSize = 257;

class GrammarTest : public testing::Test {
 protected:
  GrammarTest() {
    const int32_t eos[] = {kEnd};
    auto created = GrammarCompiler::create(byte_tokenizer(), eos);
    EXPECT_TRUE(created) << created.error().message;
    compiler_ = std::move(*created);
  }

  Grammar compile(GrammarKind kind, std::string text) {
    auto grammar = compiler_->compile({kind, std::move(text)});
    if (!grammar) ADD_FAILURE() << grammar.error().message;
    return std::move(*grammar);
  }

  std::string error_of(GrammarKind kind, std::string text) {
    const auto grammar = compiler_->compile({kind, std::move(text)});
    if (grammar) return "";
    EXPECT_EQ(grammar.error().code, ErrorCode::invalid_argument) << grammar.error().message;
    return grammar.error().message;
  }

  static bool allows(Grammar& grammar, int32_t token) {
    std::vector<uint32_t> words((kVocabSize + 31) / 32 + 1, ~0u);
    EXPECT_TRUE(grammar.mask(words));
    EXPECT_EQ(words.back(), 0u) << "beyond the vocabulary nothing may come";
    return (words[static_cast<size_t>(token / 32)] >> (token % 32) & 1) != 0;
  }

  // Whether `text` can come as a whole and the end after it.
  static bool accepts(const Grammar& grammar, std::string_view text) {
    Grammar state = grammar.clone();
    for (const char c : text) {
      const auto token = static_cast<int32_t>(static_cast<uint8_t>(c));
      if (state.complete() || !allows(state, token)) return false;
      const Status accepted = state.accept(token);
      EXPECT_TRUE(accepted) << accepted.error().message;
    }
    if (state.complete()) return true;
    if (!allows(state, kEnd)) return false;
    EXPECT_TRUE(state.accept(kEnd));
    return state.complete();
  }

  std::optional<GrammarCompiler> compiler_;
};

TEST_F(GrammarTest, JsonSchemas) {
  const Grammar grammar = compile(GrammarKind::json_schema, R"({
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0},
                   "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}},
    "required": ["name", "age"], "additionalProperties": false})");
  EXPECT_TRUE(accepts(grammar, R"({"name": "Ada", "age": 36})"));
  EXPECT_TRUE(accepts(grammar, "{\n  \"name\": \"Zo\xC3\xAB\",\n  \"age\": 1, \"tags\": [\"b\"]}"));
  EXPECT_FALSE(accepts(grammar, R"({"name": "Ada"})"));
  EXPECT_FALSE(accepts(grammar, R"({"name": "Ada", "age": -1})"));
  EXPECT_FALSE(accepts(grammar, R"({"name": "Ada", "age": 1, "more": 1})"));
  EXPECT_FALSE(accepts(grammar, R"({"name": "Ada", "age": 1, "tags": ["a", "b", "a"]})"));
  EXPECT_FALSE(accepts(grammar, "{\"name\": \"\xFF\", \"age\": 1}")) << "no UTF-8";
  std::string spaces(31, ' ');
  spaces[0] = '{';
  EXPECT_FALSE(accepts(grammar, spaces)) << "white space without end";
}

TEST_F(GrammarTest, AnyObject) {
  const Grammar grammar = compile(GrammarKind::json_schema, R"({"type": "object"})");
  EXPECT_TRUE(accepts(grammar, R"({})"));
  EXPECT_TRUE(accepts(grammar, R"({"a": [1, {"b": null}], "c": "\n\u0001"})"));
  EXPECT_FALSE(accepts(grammar, R"([])"));
}

TEST_F(GrammarTest, DiscriminatedUnionsAndReferences) {
  const Grammar grammar = compile(GrammarKind::json_schema, R"({
    "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [
       {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["next"],
       "additionalProperties": false}},
    "oneOf": [{"$ref": "#/$defs/node"}, {"type": "boolean"}]})");
  EXPECT_TRUE(accepts(grammar, R"({"next":{"next":null}})"));
  EXPECT_TRUE(accepts(grammar, "true"));
  EXPECT_FALSE(accepts(grammar, R"({"next":1})"));
}

TEST_F(GrammarTest, RegularExpressions) {
  const Grammar grammar = compile(GrammarKind::regex, R"(\d{4}-\d{2}/(a|b)+)");
  EXPECT_TRUE(accepts(grammar, "2024-05/ab"));
  EXPECT_FALSE(accepts(grammar, "2024-5/ab"));
  EXPECT_FALSE(accepts(grammar, "2024-05/"));
}

TEST_F(GrammarTest, Lark) {
  const Grammar grammar = compile(GrammarKind::ebnf, R"(
    start: sum
    sum: NUMBER ("+" NUMBER)*
    NUMBER: /[0-9]+/
  )");
  EXPECT_TRUE(accepts(grammar, "1+22+3"));
  EXPECT_FALSE(accepts(grammar, "1+"));
}

TEST_F(GrammarTest, Gbnf) {
  const Grammar flat = compile(GrammarKind::ebnf, R"(
    # Alternatives that begin alike: only together are they decided.
    root ::= greeting name? "!"
    greeting ::= "Hello" | "Hello, " | [H-I] "i" .
    name ::= [a-z]{2,3} | "\x41\u00e9"
  )");
  EXPECT_TRUE(accepts(flat, "Hello!"));
  EXPECT_TRUE(accepts(flat, "Hello, bob!"));
  EXPECT_TRUE(accepts(flat, "Hi\nA\xC3\xA9!"));
  EXPECT_FALSE(accepts(flat, "Hello, b!"));
  const Grammar nested = compile(GrammarKind::ebnf,
                                 "root ::= \"[\" (item (\",\" item)*)? \"]\"\n"
                                 "item ::= root | [^\\]\\[,]+\n");
  EXPECT_TRUE(accepts(nested, "[]"));
  EXPECT_TRUE(accepts(nested, "[a,[b c,[]],d]"));
  EXPECT_FALSE(accepts(nested, "[a,]"));
  EXPECT_FALSE(accepts(nested, "[[a]"));
}

TEST_F(GrammarTest, TheMaskIsWhatAcceptTakes) {
  Grammar grammar = compile(GrammarKind::ebnf, R"(root ::= "ab" ("c" root | [x-z])? "d"?)");
  for (const char c : std::string_view("abcab")) {
    for (int32_t token = 0; token < kVocabSize; ++token) {
      Grammar copy = grammar.clone();
      EXPECT_EQ(allows(grammar, token), copy.accept(token).has_value()) << token << " before " << c;
    }
    ASSERT_TRUE(grammar.accept(c));
  }
}

TEST_F(GrammarTest, SpecialTokensAreNoText) {
  Grammar grammar = compile(GrammarKind::regex, "(?s:.)*x");
  EXPECT_TRUE(allows(grammar, '<'));
  EXPECT_FALSE(allows(grammar, kEnd));
}

TEST_F(GrammarTest, WhatIsNoGrammarSaysWhy) {
  EXPECT_NE(error_of(GrammarKind::json_schema, "{"), "");
  EXPECT_NE(error_of(GrammarKind::json_schema, "[]"), "");
  EXPECT_NE(error_of(GrammarKind::json_schema, R"({"type": "nonsense"})"), "");
  EXPECT_NE(error_of(GrammarKind::json_schema, R"({"$ref": "#/nowhere"})"), "");
  EXPECT_NE(error_of(GrammarKind::json_schema, R"({"type": "string", "pattern": "("})"), "");
  EXPECT_NE(error_of(GrammarKind::regex, "(a"), "");
  EXPECT_NE(error_of(GrammarKind::regex, "a(?=b)"), "");
  EXPECT_NE(error_of(GrammarKind::ebnf, "start: missing"), "");
  EXPECT_NE(error_of(GrammarKind::ebnf, "root ::= missing"), "");
  EXPECT_NE(error_of(GrammarKind::ebnf, "root ::= \"a"), "");
  EXPECT_NE(error_of(GrammarKind::ebnf, ""), "");
}

TEST_F(GrammarTest, WhatCostsTooMuchIsRefused) {
  EXPECT_NE(error_of(GrammarKind::regex, std::string(400 << 10, 'a')), "");
  EXPECT_NE(error_of(GrammarKind::regex, std::string(100 << 10, '(')), "");
  EXPECT_NE(error_of(GrammarKind::ebnf, "start: " + std::string(200 << 10, '(')), "");
  EXPECT_NE(error_of(GrammarKind::ebnf, "root ::= " + std::string(200 << 10, '(')), "");
  std::string deep = "1";
  for (int i = 0; i < 10'000; ++i) deep = R"({"not":)" + deep + "}";
  EXPECT_NE(error_of(GrammarKind::json_schema, deep), "");
}

TEST_F(GrammarTest, ATokenThatIsNotAllowedIsAnError) {
  Grammar grammar = compile(GrammarKind::regex, "abc");
  EXPECT_FALSE(grammar.accept('x'));
}

}  // namespace
}  // namespace tw
