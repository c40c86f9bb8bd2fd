// The requests of other chat APIs as chat requests, and their answers over HTTP.
#include "server/chat_translation.h"

#include <random>

#include "server/chat_request.h"
#include "server/server_fixture.h"

namespace tw {
namespace {

Json json_of(const char* text) {
  return *parse_json(text, "test");
}

constexpr const char* kResponses = R"({
  "model": "m", "instructions": "Be brief.", "max_output_tokens": 5, "temperature": 0.5,
  "input": [{"role": "developer", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"}],
  "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
  "tool_choice": {"type": "function", "name": "f"}, "reasoning": {"effort": "low"},
  "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}})";

constexpr const char* kMessages = R"({
  "model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "Be brief."}],
  "messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm"},
      {"type": "text", "text": "Well."},
      {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
      "content": [{"type": "text", "text": "1"}]}, {"type": "text", "text": "Go on."}]}],
  "tools": [{"name": "f", "input_schema": {"type": "object"}}],
  "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
  "thinking": {"type": "enabled", "budget_tokens": 1024}, "stop_sequences": ["x"]})";

TEST(ChatTranslation, Responses) {
  const auto chat = chat_from_responses(json_of(kResponses));
  ASSERT_TRUE(chat) << chat.error().message;
  const Json calls = json_of(R"([
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}])");
  EXPECT_EQ((*chat)["messages"],
            Json::array({{{"role", "system"}, {"content", "Be brief."}},
                         {{"role", "system"}, {"content", {{{"type", "text"}, {"text", "Hi"}}}}},
                         {{"role", "assistant"},
                          {"content", nullptr},
                          {"reasoning_content", "Hm"},
                          {"tool_calls", calls}},
                         {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "1"}}}));
  const auto request = parse_chat_request(*chat, {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->tool_name, "f");
  EXPECT_EQ(request->openai.generation.max_new_tokens, 5);
  EXPECT_EQ(request->template_kwargs["reasoning_effort"], "low");
  ASSERT_TRUE(request->openai.generation.grammar);
  EXPECT_EQ(request->openai.generation.grammar->text, R"({"type":"object"})");
}

TEST(ChatTranslation, Messages) {
  const auto chat = chat_from_messages(json_of(kMessages), true);
  ASSERT_TRUE(chat) << chat.error().message;
  const Json calls = json_of(R"([
    {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}])");
  EXPECT_EQ(
      (*chat)["messages"],
      Json::array({{{"role", "system"}, {"content", "Be brief."}},
                   {{"role", "user"}, {"content", "Hi"}},
                   {{"role", "assistant"},
                    {"content", {{{"type", "text"}, {"text", "Well."}}}},
                    {"tool_calls", calls},
                    {"reasoning_content", "Hm"}},
                   {{"role", "tool"}, {"tool_call_id", "t1"}, {"content", "1"}},
                   {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Go on."}}}}}}));
  const auto request = parse_chat_request(*chat, {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->tool_choice, ToolChoice::named);
  EXPECT_FALSE(request->parallel_tool_calls);
  EXPECT_EQ(request->template_kwargs["enable_thinking"], true);
  EXPECT_EQ(request->openai.generation.stops, std::vector<std::string>{"x"});
  Json unlimited = json_of(kMessages);
  unlimited.erase("max_tokens");
  EXPECT_EQ(chat_from_messages(unlimited, true).error().param, "max_tokens");
  EXPECT_TRUE(chat_from_messages(unlimited, false));
}

// Any member replaced by anything: an error or a chat request, never an exception.
TEST(ChatTranslation, StandsWhateverComes) {
  const Json junk[] = {nullptr,
                       5,
                       "x",
                       true,
                       Json::array(),
                       Json::object(),
                       Json::array({1}),
                       {{"type", 5}},
                       {{"type", "text"}},
                       Json::array({{{"role", "user"}}})};
  std::mt19937 random(1);
  for (int round = 0; round < 4000; ++round) {
    Json body = json_of(round % 2 == 0 ? kResponses : kMessages);
    const Json flat = body.flatten();
    auto chosen = flat.items().begin();
    for (size_t skip = random() % flat.size(); skip > 0; --skip) ++chosen;
    // The leaf itself, or one of the values that hold it.
    Json::json_pointer where(chosen.key());
    for (size_t up = random() % 4; up > 0 && !where.parent_pointer().empty(); --up) {
      where = where.parent_pointer();
    }
    body[where] = junk[random() % std::size(junk)];
    const auto chat = round % 2 == 0 ? chat_from_responses(body) : chat_from_messages(body, true);
    if (chat) (void)parse_chat_request(*chat, {});
  }
}

class PartsTest : public ServerTest {
 protected:
  PartsTest() {
    reply =
        "<think>\nHm\n</think>\n\nYes.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
        "</tool_call>";
    tool_parser = "qwen25";
    reasoning_parser = "qwen3";
  }

  struct Event {
    std::string type;
    Json data;
  };
  // Of a stream with event lines.
  std::vector<Event> named_events(std::string_view path, const Json& body) {
    std::vector<Event> events;
    std::string text = post(path, body).body;
    for (size_t end; (end = text.find("\n\n")) != std::string::npos; text.erase(0, end + 2)) {
      const size_t line = text.find('\n');
      EXPECT_TRUE(text.starts_with("event: ")) << text;
      EXPECT_EQ(text.substr(line + 1, 6), "data: ");
      events.push_back(
          {text.substr(7, line - 7), *parse_json(text.substr(line + 7, end - line - 7), "event")});
      EXPECT_EQ(events.back().data["type"], events.back().type);
    }
    EXPECT_EQ(text, "");
    return events;
  }
};

TEST_F(PartsTest, Responses) {
  start();
  Json body = {{"input", "Hi"}, {"tools", json_of(R"([{"type": "function", "name": "f"}])")}};
  const Json answer = post_json("/v1/responses", body);
  EXPECT_EQ(answer["status"], "completed");
  ASSERT_EQ(answer["output"].size(), 3u);
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "Hm");
  EXPECT_EQ(answer["output"][1]["content"][0]["text"], "Yes.\n");
  EXPECT_EQ(answer["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(answer["tools"], body["tools"]);
  body["stream"] = true;
  const auto events = named_events("/v1/responses", body);
  EXPECT_EQ(events.front().type, "response.created");
  EXPECT_EQ(events.back().type, "response.completed");
  const Json& last = events.back().data["response"];
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(last["output"][i]["type"], answer["output"][i]["type"]);
    EXPECT_EQ(last["output"][i].value("content", Json()),
              answer["output"][i].value("content", Json()));
  }
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].data["sequence_number"], i);
}

TEST_F(PartsTest, Messages) {
  start();
  Json body = {{"max_tokens", 200},
               {"messages", json_of(R"([{"role": "user", "content": "Hi"}])")},
               {"tools", json_of(R"([{"name": "f", "input_schema": {"type": "object"}}])")}};
  const Json answer = post_json("/v1/messages", body);
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  ASSERT_EQ(answer["content"].size(), 3u);
  EXPECT_EQ(answer["content"][0]["thinking"], "Hm");
  EXPECT_EQ(answer["content"][1]["text"], "Yes.\n");
  EXPECT_EQ(answer["content"][2]["input"], Json({{"a", 1}}));
  body["stream"] = true;
  const auto events = named_events("/v1/messages", body);
  EXPECT_EQ(events.front().type, "message_start");
  EXPECT_EQ(events.back().type, "message_stop");
  std::string thinking, text, input;
  for (const Event& event : events) {
    if (event.type != "content_block_delta") continue;
    const Json& delta = event.data["delta"];
    thinking += delta.value("thinking", "");
    text += delta.value("text", "");
    input += delta.value("partial_json", "");
  }
  EXPECT_EQ(thinking, "Hm");
  EXPECT_EQ(text, "Yes.\n");
  EXPECT_EQ(input, "{\"a\":1}");
  EXPECT_EQ(events[events.size() - 2].data["delta"]["stop_reason"], "tool_use");
}

TEST_F(PartsTest, ErrorsHaveTheApisForm) {
  start();
  Json answer = post_json("/v1/messages", {{"max_tokens", 1}}, 400);
  EXPECT_EQ(answer["type"], "error");
  EXPECT_EQ(answer["error"]["type"], "invalid_request_error");
  engine().fail_next({ErrorCode::internal, "broken"});
  answer = post_json("/v1/responses", {{"input", "Hi"}}, 500);
  EXPECT_EQ(answer["error"]["message"], "broken");
  engine().fail_next({ErrorCode::internal, "broken"});
  const auto events = named_events("/v1/responses", {{"input", "Hi"}, {"stream", true}});
  EXPECT_EQ(events.back().type, "response.failed");
}

TEST_F(PartsTest, AnthropicsHeaderIsAKeyToo) {
  config.api_key = "secret";
  start();
  EXPECT_EQ(exchange("GET", "/v1/models", "", "X-Api-Key: secret\r\n").status, 200);
  EXPECT_EQ(exchange("GET", "/v1/models", "", "X-Api-Key: wrong\r\n").status, 401);
}

}  // namespace
}  // namespace tw
