// Reasoning and tool-call parsers: each format as its models write it, in whatever pieces.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "text/reasoning_parser.h"
#include "text/tool_parsers/tool_parser.h"

namespace tw {
namespace {

const Json kTools = *parse_json(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                   "code": {"type": ["string", "null"]}, "where": {"type": "object"}}}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}])",
                                "tools");

struct Case {
  const char* name;
  const char* tools;      // format; null: none
  const char* reasoning;  // format; null: none
  const char* text;
  ParsedText expected;
};

const ToolCall kParis = {"get_weather", R"({"city":"Paris","days":2})"};
const ToolCall kNow = {"now", "{}"};

const Case kCases[] = {
    {"qwen",
     "qwen25",
     nullptr,
     "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", "
     "\"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n",
     {"", "Let me see.\n", {kParis, kNow}}},
    {"qwen, the last mark missing",
     "qwen",
     nullptr,
     "<tool_call>{\"name\": \"now\", \"arguments\": {}}",
     {"", "", {kNow}}},
    {"qwen, no JSON",
     "qwen",
     nullptr,
     "a <tool_call>{\"name\": now}</tool_call> b",
     {"", "a <tool_call>{\"name\": now}</tool_call> b", {}}},
    {"qwen, marks that come to nothing",
     "qwen",
     nullptr,
     "if a <tool and <tool_cal then",
     {"", "if a <tool and <tool_cal then", {}}},
    {"qwen, arguments as text",
     "qwen",
     nullptr,
     R"(<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Zo\\u00eb </x>\"}"}</tool_call>)",
     {"", "", {{"get_weather", "{\"city\":\"Zo\xC3\xAB </x>\"}"}}}},
    {"qwen, reasoning first",
     "qwen",
     "qwen3",
     "<think>\nHm, <tool_call>?\n</think>\n\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
     {"Hm, <tool_call>?", "", {kNow}}},
    {"qwen3-coder",
     "qwen3_coder",
     nullptr,
     "Sure.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSan\nJose\n</parameter>\n"
     "<parameter=days>\n2\n</parameter>\n<parameter=code>\n12\n</parameter>\n</function>\n"
     "</tool_call>",
     {"", "Sure.\n", {{"get_weather", R"({"city":"San\nJose","days":2,"code":"12"})"}}}},
    {"llama3",
     "llama3",
     nullptr,
     R"({"name": "get_weather", "parameters": {"city": "Paris", "days": 2}}; {"name": "now", "parameters": {}})",
     {"", "", {kParis, kNow}}},
    {"llama3, marked",
     "llama3",
     nullptr,
     R"(<|python_tag|>{"name": "now", "parameters": {}})",
     {"", "", {kNow}}},
    {"llama3, mark after content",
     "llama3",
     nullptr,
     R"(One moment. <|python_tag|>{"name": "now", "parameters": {}})",
     {"", "One moment. ", {kNow}}},
    {"llama3, JSON that is an answer",
     "llama3",
     nullptr,
     R"({"name": "Ada", "parameters": {}} is it.)",
     {"", R"({"name": "Ada", "parameters": {}} is it.)", {}}},
    {"llama3, not closed",
     "llama3",
     nullptr,
     R"({"name": "now", "parameters": {)",
     {"", R"({"name": "now", "parameters": {)", {}}},
    {"mistral",
     "mistral",
     nullptr,
     R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}, "id": "abcdefghi"}, {"name": "now", "arguments": {}}])",
     {"", "", {{"get_weather", R"({"city":"Paris","days":2})", "abcdefghi"}, kNow}}},
    {"mistral, newer",
     "mistral",
     nullptr,
     R"(Well. [TOOL_CALLS]get_weather[CALL_ID]a1[ARGS]{"city": "Paris", "days": 2}[TOOL_CALLS]now[ARGS]{})",
     {"", "Well. ", {{"get_weather", R"({"city":"Paris","days":2})", "a1"}, kNow}}},
    {"deepseek v3",
     "deepseekv3",
     nullptr,
     "I "
     "look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
     "{\"city\": \"Paris\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
     "<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {"", "I look.", {kParis, kNow}}},
    {"deepseek v3.1",
     "deepseekv31",
     "deepseek-r1",
     "Think.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
     "{\"city\": \"Paris\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {"Think.", "", {kParis}}},
    {"kimi k2",
     "kimi_k2",
     "kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>{\"city\": \"Paris\", \"days\": 2}<|tool_call_end|>"
     "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     {"",
      "",
      {{"get_weather", R"({"city":"Paris","days":2})", "functions.get_weather:0"},
       {"now", "{}", "functions.now:1"}}}},
    {"glm",
     "glm45",
     "glm45",
     "\n<think>Let me.</think>\nYes.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
     "<arg_value>12</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
     "<arg_key>where</arg_key>\n<arg_value>{\"x\": [1]}</arg_value>\n</tool_call>\n"
     "<tool_call>now</tool_call>",
     {"Let me.", "Yes.\n", {{"get_weather", R"({"city":"12","days":2,"where":{"x":[1]}})"}, kNow}}},
    {"minimax",
     "minimax-m2",
     "minimax",
     "Hm.</think>\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">"
     "Paris</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"now\">\n"
     "</invoke>\n</minimax:tool_call>",
     {"Hm.", "", {kParis, kNow}}},
    {"pythonic",
     "pythonic",
     nullptr,
     "[get_weather(city='Par\\'is', days=-2, where={\"a\": (1, 2.5, None), 'b': True}), now()]",
     {"",
      "",
      {{"get_weather", R"({"city":"Par'is","days":-2,"where":{"a":[1,2.5,null],"b":true}})"},
       kNow}}},
    {"pythonic, marked",
     "pythonic",
     nullptr,
     "<|python_start|>[now()]<|python_end|>",
     {"", "", {kNow}}},
    {"pythonic, a list that is an answer",
     "pythonic",
     nullptr,
     "[1, 2] and [now()]",
     {"", "[1, 2] and [now()]", {}}},
    {"gpt-oss",
     "gpt-oss",
     "gpt-oss",
     "<|channel|>analysis<|message|>Need a <tool>.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\", \"days\": 2}"
     "<|call|>",
     {"Need a <tool>.", "", {kParis}}},
    {"gpt-oss, an answer",
     "gpt-oss",
     "gpt-oss",
     "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>"
     "It is <b>4</b>.",
     {"Easy.", "It is <b>4</b>.", {}}},
    {"gpt-oss, recipient first",
     "gpt-oss",
     nullptr,
     "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
     {"", "", {kNow}}},
    {"gpt-oss, arguments that are none",
     "gpt-oss",
     nullptr,
     "<|channel|>commentary to=functions.now<|message|>{oh<|call|>",
     {"", "<|channel|>commentary to=functions.now<|message|>{oh<|call|>", {}}},
    {"deepseek r1",
     nullptr,
     "deepseek-r1",
     "\nFirst.\n\nThen.\n</think>\n\nAnswer: </think> ends it.\n",
     {"First.\n\nThen.", "Answer: </think> ends it.\n", {}}},
    {"deepseek r1, with its mark",
     nullptr,
     "deepseek-r1",
     "<think>\nHm</think>Yes",
     {"Hm", "Yes", {}}},
    {"deepseek r1, cut off", nullptr, "deepseek-r1", "Still </thin", {"Still </thin", "", {}}},
    {"qwen3, no reasoning", nullptr, "qwen3", " <b>Hello</b>", {"", " <b>Hello</b>", {}}},
    {"qwen3, empty reasoning", nullptr, "qwen3", "<think>\n\n</think>\n\nHi", {"", "Hi", {}}},
    {"kimi", nullptr, "kimi", "◁think▷Hm◁/think▷Yes", {"Hm", "Yes", {}}},
    {"none", nullptr, nullptr, "<think>a</think>", {"", "<think>a</think>", {}}},
};

TextPipeline pipeline_of(const char* tools, const char* reasoning) {
  std::vector<std::unique_ptr<TextParser>> stages;
  const bool harmony = tools && std::string_view(tools) == "gpt-oss";
  if (reasoning && !harmony) {
    const ReasoningFormat* format = find_reasoning_format(reasoning);
    EXPECT_NE(format, nullptr) << reasoning;
    stages.push_back(make_reasoning_parser(*format, reasoning_start(*format, "user: hi\n")));
  }
  if (tools) {
    const ToolFormat* format = find_tool_format(tools);
    EXPECT_NE(format, nullptr) << tools;
    stages.push_back(format->make(std::make_shared<ToolSchemas>(kTools)));
  }
  return TextPipeline(std::move(stages));
}

ParsedText parse_in_pieces(const Case& test, std::string_view text,
                           const std::function<size_t()>& piece_size) {
  TextPipeline pipeline = pipeline_of(test.tools, test.reasoning);
  ParsedText all;
  while (!text.empty()) {
    const size_t size = std::min(piece_size(), text.size());
    append(pipeline.push(text.substr(0, size)), all);
    text.remove_prefix(size);
  }
  append(pipeline.finish(), all);
  return all;
}

void expect_equal(const ParsedText& found, const ParsedText& expected) {
  EXPECT_EQ(found.reasoning, expected.reasoning);
  EXPECT_EQ(found.content, expected.content);
  ASSERT_EQ(found.calls.size(), expected.calls.size());
  for (size_t i = 0; i < found.calls.size(); ++i) {
    EXPECT_EQ(found.calls[i].name, expected.calls[i].name);
    EXPECT_EQ(found.calls[i].arguments, expected.calls[i].arguments);
    EXPECT_EQ(found.calls[i].id, expected.calls[i].id);
  }
}

// Without white space and marks that stand alone.
std::string without_marks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  for (const std::string_view mark : {"<|python_tag|>", "<|python_start|>", "<|python_end|>"}) {
    for (size_t i; (i = text.find(mark)) != std::string::npos;) text.erase(i, mark.size());
  }
  return text;
}

TEST(TextParsers, EachFormatAsItsModelsWriteIt) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    expect_equal(parse_in_pieces(test, test.text, [] { return 1'000'000; }), test.expected);
  }
}

TEST(TextParsers, PiecesChangeNothing) {
  std::mt19937 random(1);
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    for (size_t size = 1; size <= 8; ++size) {
      expect_equal(parse_in_pieces(test, test.text, [size] { return size; }), test.expected);
    }
    for (int round = 0; round < 50; ++round) {
      const auto cut = [&] { return 1 + random() % 24; };
      expect_equal(parse_in_pieces(test, test.text, cut), test.expected);
    }
  }
}

// Texts that are nearly right: whatever comes out does not depend on the pieces, arguments are
// JSON, and what is no call is all still there.
TEST(TextParsers, BrokenTextsLoseNothing) {
  std::mt19937 random(2);
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    for (int round = 0; round < 300; ++round) {
      std::string text = test.text;
      const size_t at = random() % text.size();
      if (round % 3 == 0) {
        text.resize(at);
      } else if (round % 3 == 1) {
        text.erase(at, 1 + random() % 6);
      } else {
        text.insert(at, text.substr(random() % text.size(), random() % 30));
      }
      const ParsedText whole = parse_in_pieces(test, text, [] { return 1'000'000; });
      expect_equal(parse_in_pieces(test, text, [&] { return 1 + random() % 5; }), whole);
      for (const ToolCall& call : whole.calls) {
        const auto arguments = parse_json(call.arguments, "arguments");
        EXPECT_TRUE(arguments && arguments->is_object()) << call.arguments;
        EXPECT_FALSE(call.name.empty());
      }
      const bool drops_marks =
          test.reasoning || std::string_view(test.tools ? test.tools : "") == "gpt-oss";
      if (whole.calls.empty() && !drops_marks) {
        EXPECT_EQ(without_marks(whole.content), without_marks(text));
      }
      if (HasFailure()) {
        ADD_FAILURE() << "of: " << text;
        return;
      }
    }
  }
}

TEST(TextParsers, TextIsNotHeldBackLongerThanItMust) {
  TextPipeline pipeline = pipeline_of("qwen", "qwen3");
  EXPECT_EQ(pipeline.push("<thi").reasoning, "");
  EXPECT_EQ(pipeline.push("nk>One ").reasoning, "One");
  EXPECT_EQ(pipeline.push("two").reasoning, " two");
  EXPECT_EQ(pipeline.push("</think>").reasoning, "");
  EXPECT_EQ(pipeline.push("Three").content, "Three");
  EXPECT_EQ(pipeline.push(" <to").content, " ");
  EXPECT_EQ(pipeline.push("p>").content, "<top>");
}

TEST(TextParsers, PromptsSayWhereReasoningBegins) {
  const ReasoningFormat& qwen = *find_reasoning_format("qwen3");
  EXPECT_EQ(reasoning_start(qwen, "<|im_start|>assistant\n"), ReasoningStart::unknown);
  EXPECT_EQ(reasoning_start(qwen, "<|im_start|>assistant\n<think>\n"), ReasoningStart::inside);
  EXPECT_EQ(reasoning_start(qwen, "assistant\n<think>\n\n</think>\n\n"), ReasoningStart::outside);
  const ReasoningFormat& r1 = *find_reasoning_format("deepseek-r1");
  EXPECT_EQ(reasoning_start(r1, "<｜Assistant｜>"), ReasoningStart::inside);
  EXPECT_EQ(find_reasoning_format("nonsense"), nullptr);
}

TEST(TextParsers, FormatsAreKnownByName) {
  for (const char* name : {"qwen", "qwen25", "llama3", "mistral", "deepseekv3", "kimi_k2", "glm45",
                           "gpt-oss", "pythonic"}) {
    EXPECT_NE(find_tool_format(name), nullptr) << name;
    EXPECT_NE(tool_format_names().find(name), std::string::npos);
  }
  EXPECT_EQ(find_tool_format("nonsense"), nullptr);
}

TEST(TextParsers, ForcedCallsHaveASchema) {
  const Json all = forced_calls_schema(kTools, "", true);
  EXPECT_EQ(all["items"]["anyOf"].size(), 2u);
  EXPECT_FALSE(all.contains("maxItems"));
  const Json one = forced_calls_schema(kTools, "now", true);
  EXPECT_EQ(one["items"]["anyOf"].size(), 1u);
  EXPECT_EQ(one["items"]["anyOf"][0]["properties"]["name"]["const"], "now");
  EXPECT_EQ(one["maxItems"], 1);

  const auto parser = make_json_array_parser(std::make_shared<ToolSchemas>(kTools));
  ParsedText out;
  parser->push(R"([{"name": "now", "param)", out);
  EXPECT_TRUE(out.empty());
  parser->push(R"(eters": {}}])", out);
  parser->finish(out);
  ASSERT_EQ(out.calls.size(), 1u);
  EXPECT_EQ(out.calls[0], kNow);
  EXPECT_EQ(out.content, "");
}

}  // namespace
}  // namespace tw
