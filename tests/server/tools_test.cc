// Tool calls and reasoning in /v1/chat/completions, whole and streamed.
#include "server/server_fixture.h"

namespace tw {
namespace {

const Json kTools = *parse_json(R"([{"type": "function", "function": {"name": "add",
  "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}])",
                                "tools");

class ToolsTest : public ServerTest {
 protected:
  static Json chat(const char* more = "{}") {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})},
                 {"tools", kTools}};
    body.update(*parse_json(more, "test"));
    return body;
  }

  static constexpr const char* kReply =
      "<think>\nShould I?\n</think>\n\nYes.\n<tool_call>\n{\"name\": \"add\", \"arguments\": "
      "{\"a\": 1}}\n</tool_call>";
};

TEST_F(ToolsTest, AWholeAnswerHasReasoningContentAndCalls) {
  reply = kReply;
  tool_parser = "qwen25";
  reasoning_parser = "qwen3";
  start();
  const Json choice = post_json("/v1/chat/completions", chat())["choices"][0];
  const Json& message = choice["message"];
  EXPECT_EQ(message["reasoning_content"], "Should I?");
  EXPECT_EQ(message["content"], "Yes.\n");
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  const Json& call = message["tool_calls"][0];
  EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"], Json({{"name", "add"}, {"arguments", "{\"a\":1}"}}));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(ToolsTest, AStreamSaysTheSame) {
  reply = kReply;
  tool_parser = "qwen25";
  reasoning_parser = "qwen3";
  start();
  const auto events =
      events_of(post("/v1/chat/completions", chat(R"({"stream": true, "n": 2})")).body);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string reasoning[2], content[2];
  Json calls[2], reasons[2];
  for (const Json& event : events) {
    if (!event.is_object()) continue;
    const Json& choice = event["choices"][0];
    const auto index = choice["index"].get<size_t>();
    const Json& delta = choice["delta"];
    reasoning[index] += delta.value("reasoning_content", "");
    content[index] += delta.value("content", "");
    for (const Json& call : delta.value("tool_calls", Json::array())) calls[index].push_back(call);
    if (!choice["finish_reason"].is_null()) reasons[index] = choice["finish_reason"];
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(reasoning[i], "Should I?");
    EXPECT_EQ(content[i], "Yes.\n");
    ASSERT_EQ(calls[i].size(), 1u);
    EXPECT_EQ(calls[i][0]["index"], 0);
    EXPECT_EQ(calls[i][0]["function"]["name"], "add");
    EXPECT_EQ(calls[i][0]["function"]["arguments"], "{\"a\":1}");
    EXPECT_EQ(reasons[i], "tool_calls");
  }
  EXPECT_NE(calls[0][0]["id"], calls[1][0]["id"]);
}

TEST_F(ToolsTest, ReasoningMayStayInTheText) {
  reply = "<think>a</think>b";
  reasoning_parser = "qwen3";
  start();
  const Json message = post_json("/v1/chat/completions",
                                 chat(R"({"separate_reasoning": false})"))["choices"][0]["message"];
  EXPECT_EQ(message["content"], "<think>a</think>b");
  EXPECT_FALSE(message.contains("reasoning_content"));
}

TEST_F(ToolsTest, WithoutToolsOrParserCallsAreText) {
  reply = "<tool_call>{\"name\": \"add\"}</tool_call>";
  tool_parser = "qwen25";
  start();
  for (const char* more : {R"({"tools": null})", R"({"tool_choice": "none"})"}) {
    const Json choice = post_json("/v1/chat/completions", chat(more))["choices"][0];
    EXPECT_EQ(choice["message"]["content"], reply);
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST_F(ToolsTest, ForcedCallsAreConstrainedAndParsed) {
  reply = R"([{"name": "add", "parameters": {"a": 2}}])";
  start();
  for (const char* more :
       {R"({"tool_choice": "required"})",
        R"({"tool_choice": {"type": "function", "function": {"name": "add"}}})"}) {
    const Json choice = post_json("/v1/chat/completions", chat(more))["choices"][0];
    EXPECT_EQ(choice["message"]["content"], nullptr);
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\":2}");
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(engine().submitted().back().constraint);
  }
}

TEST_F(ToolsTest, ATemplateThatRaisesIs400) {
  start();
  // The byte tokenizer's template takes what comes; a schema that is none does not get that far.
  Json body = chat(R"({"tool_choice": "required"})");
  body["tools"][0]["function"]["parameters"] = {{"type", "nonsense"}};
  const Json answer = post_json("/v1/chat/completions", body, 400);
  EXPECT_NE(answer["error"]["message"].get<std::string>().find("grammar"), std::string::npos);
}

}  // namespace
}  // namespace tw
