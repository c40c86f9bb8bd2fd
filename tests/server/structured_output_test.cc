// Structured output: requests become constraints, whose masks follow the grammar.
#include "server/grammar_fields.h"
#include "server/server_fixture.h"

namespace tw {
namespace {

bool allows(TokenConstraint& constraint, int32_t token) {
  const auto words = constraint.allowed();
  EXPECT_TRUE(words) << words.error().message;
  if (words->empty()) return true;
  return ((*words)[static_cast<size_t>(token / 32)] >> (token % 32) & 1) != 0;
}

// Feeds `text` and says how many of its bytes the constraint allows.
size_t accepted(TokenConstraint& constraint, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto token = static_cast<int32_t>(static_cast<uint8_t>(text[i]));
    if (constraint.complete() || !allows(constraint, token)) return i;
    const Status status = constraint.accept(token);
    EXPECT_TRUE(status) << status.error().message;
  }
  return text.size();
}

class StructuredOutputTest : public ServerTest {
 protected:
  std::shared_ptr<TokenConstraint> constraint_of(const char* fields, const char* path) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})},
                 {"prompt", "Hi"},
                 {"text", "Hi"}};
    body.update(*parse_json(fields, "test"));
    post_json(path, body);
    return engine().submitted().back().constraint;
  }
  std::shared_ptr<TokenConstraint> chat(const char* fields) {
    return constraint_of(fields, "/v1/chat/completions");
  }
};

TEST_F(StructuredOutputTest, CostsAreCounted) {
  start();
  auto constraint = chat(R"({"regex": "abc"})");
  EXPECT_EQ(accepted(*constraint, "abc"), 3u);
  const MaskCosts costs = service().grammars().costs();
  EXPECT_GE(costs.num_masks, 3);
  EXPECT_GT(costs.compute_seconds, 0);
  const std::string metrics = exchange("GET", "/metrics").body;
  EXPECT_NE(metrics.find(fmt::format(
                "tilewright_grammar_masks_total{{model_name=\"test-model\"}} {}", costs.num_masks)),
            std::string::npos)
      << metrics;
}

TEST_F(StructuredOutputTest, EveryWayToAskForIt) {
  start();
  EXPECT_FALSE(chat(R"({"response_format": {"type": "text"}})"));
  auto constraint = chat(R"({"response_format": {"type": "json_object"}})");
  EXPECT_EQ(accepted(*constraint, "{\"a\": [1]}x"), 10u);
  EXPECT_TRUE(constraint->complete());
  constraint = chat(R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n",
                        "strict": true, "schema": {"type": "integer"}}}})");
  EXPECT_EQ(accepted(*constraint, "12a"), 2u);
  constraint = constraint_of(R"({"regex": "ab+"})", "/v1/completions");
  EXPECT_EQ(accepted(*constraint, "abbc"), 3u);
  constraint = constraint_of(
      R"({"sampling_params": {"json_schema": "{\"enum\": [\"x\", \"yz\"]}"}})", "/generate");
  EXPECT_EQ(accepted(*constraint, "\"yz\""), 4u);
  EXPECT_TRUE(constraint->complete());
  constraint =
      constraint_of(R"({"sampling_params": {"ebnf": "root ::= \"a\" root | \"b\""}})", "/generate");
  EXPECT_EQ(accepted(*constraint, "aab"), 3u);
  EXPECT_TRUE(constraint->complete());
}

TEST_F(StructuredOutputTest, ChoicesHaveStatesOfTheirOwn) {
  start();
  chat(R"({"regex": "[ab]c", "n": 2})");
  const auto submitted = engine().submitted();
  ASSERT_EQ(submitted.size(), 2u);
  EXPECT_EQ(accepted(*submitted[0].constraint, "ac"), 2u);
  EXPECT_EQ(accepted(*submitted[1].constraint, "bc"), 2u);
}

TEST_F(StructuredOutputTest, GrammarsThatAreNoneAre400) {
  start();
  const std::pair<const char*, const char*> cases[] = {
      {"/v1/chat/completions", R"({"regex": "("})"},
      {"/v1/chat/completions", R"({"ebnf": "root ::= x"})"},
      {"/v1/chat/completions",
       R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "x"}}}})"},
      {"/v1/completions", R"x({"regex": "a(?<=b)"})x"},
      {"/generate", R"x({"sampling_params": {"regex": "a(?=b)"}})x"}};
  for (const auto& [path, fields] : cases) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})},
                 {"prompt", "Hi"},
                 {"text", "Hi"}};
    body.update(*parse_json(fields, "test"));
    const Json answer = post_json(path, body, 400);
    EXPECT_EQ(answer["error"]["type"], "invalid_request_error") << fields;
  }
  EXPECT_TRUE(engine().submitted().empty());
}

TEST_F(StructuredOutputTest, AGrammarWaitsForTheEndOfReasoning) {
  reasoning_parser = "deepseek-r1";
  start();
  const auto constraint = chat(R"({"regex": "x+y"})");
  EXPECT_EQ(accepted(*constraint, "anything</think>xxy"), 19u);
  EXPECT_TRUE(constraint->complete());
}

TEST(GrammarConstraint, TheFirstTokenMayOpenReasoning) {
  const int32_t eos[] = {256};
  MaskWorkers workers(1);
  const auto compiler = GrammarCompiler::create(byte_tokenizer(), eos);
  ASSERT_TRUE(compiler);
  const auto grammar = compiler->compile({GrammarKind::regex, "ab"});
  ASSERT_TRUE(grammar);
  const GrammarStart start{.after = {'.', '.'}, .only_if_first = '('};
  GrammarConstraint reasons(grammar->clone(), start, 257, workers);
  EXPECT_TRUE(allows(reasons, 'a'));
  EXPECT_FALSE(allows(reasons, 'b'));
  EXPECT_EQ(accepted(reasons, "(b.b..ab"), 8u);
  EXPECT_TRUE(reasons.complete());
  GrammarConstraint deferred(grammar->clone(), start, 257, workers);
  EXPECT_EQ(accepted(deferred, "(..("), 3u) << "the mark is of the first token alone";
  GrammarConstraint direct(grammar->clone(), start, 257, workers);
  EXPECT_EQ(accepted(direct, "ab"), 2u);
  EXPECT_TRUE(direct.complete());
}

TEST(StructuralTag, FreeTextUntilATrigger) {
  const auto source = structural_tag_grammar(*parse_json(R"({"triggers": ["<f="], "structures": [
    {"begin": "<f=a>", "schema": {"type": "object", "properties": {"x": {"type": "integer"}},
     "required": ["x"], "additionalProperties": false}, "end": "</f>"},
    {"begin": "<f=b>", "schema": {"type": "object"}, "end": "</f>"}]})",
                                                         "tag"));
  ASSERT_TRUE(source) << source.error().message;
  const int32_t eos[] = {256};
  const auto compiler = GrammarCompiler::create(byte_tokenizer(), eos);
  const auto grammar = compiler->compile(*source);
  ASSERT_TRUE(grammar) << grammar.error().message;
  MaskWorkers workers(1);
  const auto count = [&](std::string_view text) {
    GrammarConstraint constraint(grammar->clone(), {}, 257, workers);
    const size_t taken = accepted(constraint, text);
    return std::pair(taken == text.size(), taken < text.size() ? false : allows(constraint, 256));
  };
  EXPECT_EQ(count("just <text>\nof any kind"), std::pair(true, true));
  EXPECT_EQ(count("see: <f=a>{\"x\": 5}</f> and <f=b>{}</f>!"), std::pair(true, true));
  EXPECT_EQ(count("see: <f=a>{\"x\": 5}"), std::pair(true, false)) << "not closed";
  EXPECT_FALSE(count("see: <f=a>{\"y\"").first);
  EXPECT_FALSE(count("see: <f=c").first);
  EXPECT_FALSE(structural_tag_grammar(*parse_json(
      R"({"triggers": ["<g="], "structures": [{"begin": "<f=a>", "schema": {}, "end": ""}]})",
      "")));
}

}  // namespace
}  // namespace tw
