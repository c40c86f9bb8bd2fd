// OpenAI's endpoints over a socket, with a fake engine behind.
#include "server/server_fixture.h"

namespace tw {
namespace {

Json chat(const char* more = "{}") {
  Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
  body.update(*parse_json(more, "test"));
  return body;
}

Json completion(const char* more = "{}") {
  Json body = {{"prompt", "Once"}};
  body.update(*parse_json(more, "test"));
  return body;
}

class OpenAiTest : public ServerTest {};

TEST_F(OpenAiTest, chat_whole_answer) {
  start();
  const Json answer = post_json("/v1/chat/completions", chat());
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "test-model");
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "Hello, world.");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["logprobs"], nullptr);
  // "user: Hi\nassistant: " has 20 bytes; the end token counts.
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 20);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 14);
  EXPECT_EQ(answer["usage"]["total_tokens"], 34);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

TEST_F(OpenAiTest, chat_template_gets_messages_tools_and_flags) {
  start();
  const auto prompt_of = [&](const Json& body) {
    post_json("/v1/chat/completions", body);
    std::string text;
    const std::vector<TokenId> prompt = engine().submitted().back().prompt;
    for (TokenId id : prompt) text += static_cast<char>(id);
    return text;
  };
  EXPECT_EQ(prompt_of(chat()), "user: Hi\nassistant: ");
  EXPECT_EQ(prompt_of(chat(R"({"tools": [{"type": "function", "function": {"name": "f"}}]})")),
            "user: Hi\ntools: 1\nassistant: ");
  EXPECT_EQ(prompt_of(chat(R"({"tools": [{"function": {"name": "f"}}], "tool_choice": "none"})")),
            "user: Hi\nassistant: ");
  EXPECT_EQ(prompt_of(chat(R"({"add_generation_prompt": false})")), "user: Hi\n");
  EXPECT_EQ(
      prompt_of({{"messages",
                  Json::array({{{"role", "user"},
                                {"content", Json::array({{{"type", "text"}, {"text", "a"}},
                                                         {{"type", "text"}, {"text", "b"}}})}}})}}),
      "user: a\nb\nassistant: ");
}

TEST_F(OpenAiTest, chat_without_max_tokens_may_fill_the_context) {
  start();
  post_json("/v1/chat/completions", chat());
  EXPECT_EQ(engine().submitted().back().sampling.max_new_tokens, 512 - 20);
}

TEST_F(OpenAiTest, sampling_reaches_the_engine) {
  generation_config = {{"temperature", 0.25}, {"top_k", 11}};
  start();
  post_json("/v1/chat/completions", chat(R"({"top_p": 0.5, "seed": 7, "n": 2})"));
  const auto submitted = engine().submitted();
  ASSERT_EQ(submitted.size(), 2u);
  EXPECT_EQ(submitted[0].sampling.temperature, 0.25f);
  EXPECT_EQ(submitted[0].sampling.top_k, 11);
  EXPECT_EQ(submitted[0].sampling.top_p, 0.5f);
  EXPECT_EQ(submitted[0].sampling.seed, 7u);
  EXPECT_EQ(submitted[1].sampling.seed, 8u) << "n equal choices would be of no use";
}

TEST_F(OpenAiTest, chat_stream) {
  start();
  const RawResponse response = post("/v1/chat/completions", chat(R"({"stream": true,
                                            "stream_options": {"include_usage": true}})"));
  ASSERT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto events = events_of(response.body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", ""}}));
  std::string text;
  for (size_t i = 1; i + 3 < events.size(); ++i) {
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    EXPECT_EQ(events[i]["usage"], nullptr);
    EXPECT_EQ(events[i]["choices"][0]["finish_reason"], nullptr);
    text += events[i]["choices"][0]["delta"]["content"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello, world.");
  const Json& last = events[events.size() - 3];
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(last["choices"][0]["delta"], Json::object());
  const Json& usage = events[events.size() - 2];
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 14);
}

TEST_F(OpenAiTest, stream_over_http_1_0_ends_with_the_connection) {
  start();
  const std::string body = dump_json(chat(R"({"stream": true})"));
  RawClient client(port());
  client.send(fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}",
                          body.size(), body));
  const RawResponse response = client.response();
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(events_of(response.body).back(), "[DONE]");
}

TEST_F(OpenAiTest, half_characters_are_never_streamed) {
  reply = "\xF0\x9F\x98\x80 \xC3\xA9!";
  start();
  const auto events = events_of(post("/v1/chat/completions", chat(R"({"stream": true})")).body);
  std::vector<std::string> pieces;
  for (const Json& event : events) {
    if (!event.is_object()) continue;
    const Json& delta = event["choices"][0]["delta"];
    if (delta.contains("content") && delta["content"] != "") pieces.push_back(delta["content"]);
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"\xF0\x9F\x98\x80", " ", "\xC3\xA9", "!"}));
}

TEST_F(OpenAiTest, stop_strings_end_the_generation) {
  start();
  Json answer = post_json("/v1/chat/completions", chat(R"({"stop": ["xyz", "lo, w"]})"));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Hel");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["matched_stop"], "lo, w");
  answer = post_json("/v1/chat/completions", chat(R"({"stop": "lo, w", "no_stop_trim": true})"));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Hello, w");
}

TEST_F(OpenAiTest, a_stop_string_frees_the_engine) {
  reply = std::string(400, 'a');
  start();
  engine().set_step_time(std::chrono::milliseconds(5));
  post_json("/v1/chat/completions", chat(R"({"stop": "aaa"})"));
  EXPECT_TRUE(eventually([&] { return engine().num_running() == 0; }));
  EXPECT_EQ(engine().num_aborted(), 1);
}

TEST_F(OpenAiTest, max_tokens_and_stop_tokens) {
  start();
  Json answer = post_json("/v1/chat/completions", chat(R"({"max_tokens": 3})"));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Hel");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  // 'o' is 111: counted, not shown.
  answer = post_json("/v1/chat/completions", chat(R"({"stop_token_ids": [111]})"));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Hell");
  EXPECT_EQ(answer["choices"][0]["matched_stop"], 111);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 5);
  answer =
      post_json("/v1/chat/completions", chat(R"({"stop_token_ids": [111], "no_stop_trim": true})"));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Hello");
}

TEST_F(OpenAiTest, chat_logprobs) {
  start();
  const Json answer = post_json("/v1/chat/completions",
                                chat(R"({"logprobs": true, "top_logprobs": 2, "max_tokens": 2})"));
  const Json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["token"], "H");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], Json::array({72}));
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "b");
  EXPECT_EQ(content[0]["top_logprobs"][1]["logprob"], -1.5);
}

TEST_F(OpenAiTest, logprobs_show_bytes_of_half_characters) {
  reply = "\xC3\xA9";
  start();
  const Json answer = post_json("/v1/chat/completions", chat(R"({"logprobs": true})"));
  const Json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u) << "the end token is not part of the text";
  EXPECT_EQ(content[0]["bytes"], Json::array({0xC3}));
  EXPECT_EQ(content[1]["bytes"], Json::array({0xA9}));
}

TEST_F(OpenAiTest, choices_of_a_stream_are_told_apart) {
  start();
  const auto events = events_of(
      post("/v1/chat/completions", chat(R"({"stream": true, "n": 3, "max_tokens": 4})")).body);
  std::string texts[3];
  int ends = 0;
  for (const Json& event : events) {
    if (!event.is_object()) continue;
    const Json& choice = event["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["delta"].value("content", "");
    ends += choice["finish_reason"] == "length";
  }
  for (const std::string& text : texts) EXPECT_EQ(text, "Hell");
  EXPECT_EQ(ends, 3);
}

TEST_F(OpenAiTest, completion_answers) {
  start();
  const Json answer = post_json("/v1/completions", completion());
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "Hello, world.");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(engine().submitted()[0].sampling.max_new_tokens, 16) << "OpenAI's default";
}

TEST_F(OpenAiTest, completion_batches_number_their_choices) {
  start();
  const Json answer =
      post_json("/v1/completions",
                {{"prompt", {"one", "three"}}, {"n", 2}, {"max_tokens", 2}, {"echo", true}});
  ASSERT_EQ(answer["choices"].size(), 4u);
  const char* texts[] = {"oneHe", "oneHe", "threeHe", "threeHe"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3 + 5);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4 * 2);
}

TEST_F(OpenAiTest, completion_echo_with_logprobs) {
  start();
  const Json answer =
      post_json("/v1/completions",
                {{"prompt", {79, 110}}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}});
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "OnH");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::array({"O", "n", "H"}));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::array({nullptr, -0.5, -0.5}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::array({0, 1, 2}));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0], nullptr);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][2], Json({{"H", -0.5}}));
}

TEST_F(OpenAiTest, completion_scores_a_prompt_alone) {
  start();
  const Json answer = post_json(
      "/v1/completions", {{"prompt", "abc"}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}});
  EXPECT_EQ(answer["choices"][0]["text"], "abc");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
}

TEST_F(OpenAiTest, completion_stream) {
  start();
  const auto events =
      events_of(post("/v1/completions", completion(R"({"stream": true, "echo": true})")).body);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  for (const Json& event : events) {
    if (event.is_object()) text += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "OnceHello, world.");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
}

TEST_F(OpenAiTest, models) {
  start();
  const Json list = *parse_json(exchange("GET", "/v1/models").body, "test");
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "test-model");
  EXPECT_EQ(exchange("GET", "/v1/models/test-model").status, 200);
  EXPECT_EQ(exchange("GET", "/v1/models/%2Fmodels%2Ftest").status, 200);
  const RawResponse missing = exchange("GET", "/v1/models/gpt-4");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ((*parse_json(missing.body, "test"))["error"]["code"], "model_not_found");
}

TEST_F(OpenAiTest, model_names) {
  start();
  for (const char* name : {"test-model", "/models/test", "default"}) {
    post_json("/v1/chat/completions", chat(fmt::format(R"({{"model": "{}"}})", name).c_str()));
  }
  const Json answer = post_json("/v1/chat/completions", chat(R"({"model": "gpt-4"})"), 404);
  EXPECT_EQ(answer["error"]["code"], "model_not_found");
  EXPECT_EQ(answer["error"]["param"], "model");
}

TEST_F(OpenAiTest, too_long_prompts) {
  start();
  Json answer = post_json("/v1/completions", {{"prompt", std::string(600, 'a')}}, 400);
  EXPECT_EQ(answer["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(answer["error"]["param"], "prompt");
  // So long that it is not even tokenized.
  answer = post_json("/v1/completions", {{"prompt", std::string(3 << 20, 'a')}}, 400);
  EXPECT_EQ(answer["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(engine().submitted().size(), 0u);
}

TEST_F(OpenAiTest, errors_of_the_engine) {
  start();
  Json answer = post_json("/v1/completions", completion(R"({"logit_bias": {"9999": 1}})"), 400);
  EXPECT_NE(answer["error"]["message"].get<std::string>().find("9999"), std::string::npos);

  engine().fail_next({ErrorCode::internal, "broken"});
  answer = post_json("/v1/completions", completion(), 500);
  EXPECT_EQ(answer["error"]["message"], "broken");

  engine().fail_next({ErrorCode::internal, "broken"});
  const auto events = events_of(post("/v1/completions", completion(R"({"stream": true})")).body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["error"]["message"], "broken");
}

TEST_F(OpenAiTest, a_full_queue_is_429_and_leaves_nothing_behind) {
  start();
  engine().hold();
  // The fake takes 16.
  const RawResponse response = post("/v1/chat/completions", chat(R"({"n": 17})"));
  EXPECT_EQ(response.status, 429);
  EXPECT_TRUE(response.headers.contains("retry-after"));
  EXPECT_TRUE(eventually([&] { return engine().num_running() == 0; }));
  engine().release();
  post_json("/v1/chat/completions", chat(R"({"n": 16})"));
}

TEST_F(OpenAiTest, invalid_bodies) {
  start();
  const auto status = [&](std::string_view body) {
    const RawResponse response = exchange("POST", "/v1/chat/completions", body);
    EXPECT_NE(response.body.find("\"error\""), std::string::npos);
    return response.status;
  };
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("{"), 400);
  EXPECT_EQ(status("not json"), 400);
  EXPECT_EQ(status("{\"messages\": [{\"role\": \"user\", \"content\": \"\xFF\"}]}"), 400);
  EXPECT_EQ(status(R"({"messages": [{"role": "user", "content": "\ud800"}]})"), 400);
  EXPECT_EQ(status(std::string(100'000, '[')), 400);
  EXPECT_EQ(status(R"({"messages": [{"role": "user", "content": "x"}]} trailing)"), 400);
}

}  // namespace
}  // namespace tw
