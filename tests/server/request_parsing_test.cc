// Request bodies to typed values, and what is said about those that cannot be right.
#include <gtest/gtest.h>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/generate_request.h"

namespace tw {
namespace {

Json json_of(const char* text) {
  auto json = parse_json(text, "test");
  EXPECT_TRUE(json) << text;
  return json ? *json : Json();
}

ApiError chat_error(const char* text) {
  const auto request = parse_chat_request(json_of(text), {});
  EXPECT_FALSE(request) << text;
  return request ? ApiError{} : request.error();
}

TEST(RequestParsing, chat_takes_all_fields) {
  const auto request = parse_chat_request(json_of(R"({
    "model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "repetition_penalty": 1.5,
    "frequency_penalty": -1, "presence_penalty": 2, "seed": -1, "n": 3, "stop": ["a", "", "b"],
    "max_completion_tokens": 9, "min_tokens": 2, "ignore_eos": true, "stop_token_ids": [5],
    "no_stop_trim": true, "skip_special_tokens": false, "logit_bias": {"17": -100},
    "logprobs": true, "top_logprobs": 4, "stream": true, "stream_options": {"include_usage": true},
    "chat_template_kwargs": {"thinking": false}, "tools": [{"function": {"name": "f"}}], "rid": "r", "unknown": 1})"),
                                          {});
  ASSERT_TRUE(request) << request.error().message;
  const GenerationOptions& options = request->openai.generation;
  EXPECT_EQ(options.sampling.temperature, 0.5f);
  EXPECT_EQ(options.sampling.top_p, 0.25f);
  EXPECT_EQ(options.sampling.top_k, 7);
  EXPECT_EQ(options.sampling.min_p, 0.125f);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(options.sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(options.sampling.presence_penalty, 2.0f);
  EXPECT_EQ(options.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(options.n, 3);
  EXPECT_EQ(options.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.max_new_tokens, 9);
  EXPECT_EQ(options.sampling.min_new_tokens, 2);
  EXPECT_TRUE(options.sampling.ignore_eos);
  EXPECT_EQ(options.sampling.stop_token_ids, (std::vector<TokenId>{5}));
  EXPECT_TRUE(options.no_stop_trim);
  EXPECT_FALSE(options.skip_special_tokens);
  ASSERT_EQ(options.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(options.sampling.logit_bias[0], (std::pair<TokenId, float>{17, -100.0f}));
  EXPECT_TRUE(request->logprobs);
  EXPECT_EQ(request->top_logprobs, 4);
  EXPECT_TRUE(request->openai.stream);
  EXPECT_TRUE(request->openai.include_usage);
  EXPECT_EQ(request->template_kwargs, json_of(R"({"thinking": false})"));
  EXPECT_EQ(request->tools.size(), 1u);
  EXPECT_EQ(request->openai.rid, "r");
}

TEST(RequestParsing, null_is_absent) {
  const auto request = parse_chat_request(
      json_of(R"({"messages": [{"role": "user", "content": "x"}], "temperature": null, "stop": null,
                  "max_tokens": null, "stream": null, "tools": null, "response_format": null})"),
      {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->openai.generation.max_new_tokens, std::nullopt);
}

TEST(RequestParsing, defaults_come_from_generation_config) {
  const SamplingParams defaults = sampling_defaults(json_of(
      R"({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1})"));
  const auto request =
      parse_chat_request(json_of(R"({"messages": [{"role": "user", "content": "x"}], "top_k": 5})"),
                         {.sampling = defaults});
  ASSERT_TRUE(request);
  EXPECT_EQ(request->openai.generation.sampling.temperature, 0.6f);
  EXPECT_EQ(request->openai.generation.sampling.top_p, 0.9f);
  EXPECT_EQ(request->openai.generation.sampling.top_k, 5);
  EXPECT_EQ(request->openai.generation.sampling.min_p, 0.1f);
  EXPECT_EQ(request->openai.generation.sampling.repetition_penalty, 1.1f);
}

TEST(RequestParsing, unusable_defaults_are_left_out) {
  const SamplingParams defaults =
      sampling_defaults(json_of(R"({"temperature": -1, "top_p": "0.9", "top_k": 0, "min_p": 7})"));
  EXPECT_EQ(defaults.temperature, 1.0f);
  EXPECT_EQ(defaults.top_p, 1.0f);
  EXPECT_EQ(defaults.top_k, -1);
  EXPECT_EQ(defaults.min_p, 0.0f);
}

TEST(RequestParsing, errors_name_field_value_and_what_is_valid) {
  const ApiError error =
      chat_error(R"({"messages": [{"role": "user", "content": "x"}], "temperature": -0.5})");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_EQ(error.param, "temperature");
  EXPECT_EQ(error.message, "temperature: -0.5 is not valid; it must be a number of at least 0");
}

struct BadChat {
  const char* fields;
  const char* param;
};

class BadChatTest : public testing::TestWithParam<BadChat> {};

TEST_P(BadChatTest, names_its_field) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "x"}], )" + std::string(GetParam().fields) + "}";
  const ApiError error = chat_error(body.c_str());
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, GetParam().param) << error.message;
  EXPECT_NE(error.message.find("must be"), std::string::npos) << error.message;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadChatTest,
    testing::Values(
        BadChat{R"("temperature": "hot")", "temperature"},
        BadChat{R"("temperature": 1e300)", "temperature"}, BadChat{R"("top_p": 0)", "top_p"},
        BadChat{R"("top_p": 1.01)", "top_p"}, BadChat{R"("top_k": -2)", "top_k"},
        BadChat{R"("top_k": 1.5)", "top_k"}, BadChat{R"("min_p": 2)", "min_p"},
        BadChat{R"("repetition_penalty": 0)", "repetition_penalty"},
        BadChat{R"("frequency_penalty": 3)", "frequency_penalty"},
        BadChat{R"("presence_penalty": -3)", "presence_penalty"}, BadChat{R"("n": 0)", "n"},
        BadChat{R"("n": 129)", "n"}, BadChat{R"("n": 99999999999999999999)", "n"},
        BadChat{R"("max_tokens": -1)", "max_tokens"},
        BadChat{R"("max_tokens": 4294967296)", "max_tokens"},
        BadChat{R"("max_completion_tokens": [])", "max_completion_tokens"},
        BadChat{R"("seed": 1.5)", "seed"}, BadChat{R"("stop": 5)", "stop"},
        BadChat{R"("stop": ["a", 5])", "stop[1]"}, BadChat{R"("stream": "yes")", "stream"},
        BadChat{R"("stream_options": 1)", "stream_options"},
        BadChat{R"("stream_options": {"include_usage": 1})", "stream_options.include_usage"},
        BadChat{R"("logit_bias": [])", "logit_bias"},
        BadChat{R"("logit_bias": {"x": 1})", "logit_bias"},
        BadChat{R"("logit_bias": {"5": 101})", "logit_bias.5"},
        BadChat{R"("stop_token_ids": ["x"])", "stop_token_ids[0]"},
        BadChat{R"("logprobs": 1)", "logprobs"}, BadChat{R"("top_logprobs": 2)", "top_logprobs"},
        BadChat{R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
        BadChat{R"("tools": {})", "tools"}, BadChat{R"("tool_choice": "required")", "tool_choice"},
        BadChat{R"("chat_template_kwargs": "x")", "chat_template_kwargs"},
        BadChat{R"("tools": [{"type": "function"}])", "tools[0].function"},
        BadChat{R"("tools": [{"type": "code"}])", "tools[0]"},
        BadChat{R"("tools": [{"function": {"name": ""}}])", "tools[0].function.name"},
        BadChat{R"("tools": [{"function": {"name": "f", "parameters": 1}}])",
                "tools[0].function.parameters"},
        BadChat{
            R"("tools": [{"function": {"name": "f"}}], "tool_choice": {"function": {"name": "g"}})",
            "tool_choice"},
        BadChat{R"("tool_choice": 5)", "tool_choice"},
        BadChat{R"("response_format": {"type": "xml"})", "response_format"},
        BadChat{R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
        BadChat{R"("response_format": {"type": "structural_tag"})", "response_format"},
        BadChat{R"("json_schema": "{")", "json_schema"},
        BadChat{R"("regex": "a+", "ebnf": "root ::= \"a\"")", "ebnf"},
        BadChat{R"("regex": 5)", "regex"}, BadChat{R"("model": 5)", "model"}));

class BadMessagesTest : public testing::TestWithParam<BadChat> {};

TEST_P(BadMessagesTest, names_its_place) {
  const std::string body = R"({"messages": )" + std::string(GetParam().fields) + "}";
  EXPECT_EQ(chat_error(body.c_str()).param, GetParam().param);
}

INSTANTIATE_TEST_SUITE_P(
    Messages, BadMessagesTest,
    testing::Values(
        BadChat{"[]", "messages"}, BadChat{"null", "messages"}, BadChat{R"("hi")", "messages"},
        BadChat{R"(["hi"])", "messages[0]"}, BadChat{R"([{}])", "messages[0].role"},
        BadChat{R"([{"role": 5}])", "messages[0].role"},
        BadChat{R"([{"role": "user", "content": 5}])", "messages[0].content"},
        BadChat{R"([{"role": "user", "content": [5]}])", "messages[0].content[0]"},
        BadChat{R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])",
                "messages[0].content[0].type"},
        BadChat{R"([{"role": "user", "content": [{"type": "text"}]}])",
                "messages[0].content[0].text"}));

TEST(RequestParsing, too_many_or_too_long_stop_strings) {
  Json body = json_of(R"({"messages": [{"role": "user", "content": "x"}]})");
  for (int i = 0; i < 10'000; ++i) body["stop"].push_back("stop" + std::to_string(i));
  auto request = parse_chat_request(body, {});
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().param, "stop");
  EXPECT_NE(request.error().message.find("1024"), std::string::npos) << request.error().message;

  body["stop"] = Json::array({std::string(100'000, 'x')});
  request = parse_chat_request(body, {});
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().param, "stop");

  body["stop"] = Json::array();
  for (int i = 0; i < 1024; ++i) body["stop"].push_back("stop" + std::to_string(i));
  EXPECT_TRUE(parse_chat_request(body, {}));
}

TEST(RequestParsing, body_must_be_an_object) {
  for (const char* body : {"[]", "5", "null", "\"x\"", "true"}) {
    EXPECT_EQ(chat_error(body).status, 400);
  }
}

TEST(RequestParsing, completion_prompt_forms) {
  const auto prompts = [](const char* text) {
    auto request = parse_completion_request(json_of(text), {});
    EXPECT_TRUE(request) << text;
    return request ? request->prompts : std::vector<PromptInput>();
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompts(R"({"prompt": "a"})"), (std::vector<PromptInput>{"a"}));
  EXPECT_EQ(prompts(R"({"prompt": ["a", "b"]})"), (std::vector<PromptInput>{"a", "b"}));
  EXPECT_EQ(prompts(R"({"prompt": [1, 2]})"), (std::vector<PromptInput>{Ids{1, 2}}));
  EXPECT_EQ(prompts(R"({"prompt": [[1], [2, 3]]})"), (std::vector<PromptInput>{Ids{1}, Ids{2, 3}}));
}

TEST(RequestParsing, bad_completion_requests) {
  for (const char* text :
       {R"({})", R"({"prompt": []})", R"({"prompt": 5})", R"({"prompt": ["a", 1]})",
        R"({"prompt": [1, "a"]})", R"({"prompt": [[1], "a"]})", R"({"prompt": [[1.5]]})",
        R"({"prompt": [-1]})", R"({"prompt": {}})", R"({"prompt": "a", "suffix": "b"})",
        R"({"prompt": "a", "n": 3, "best_of": 2})", R"({"prompt": "a", "best_of": 129})",
        R"({"prompt": "a", "best_of": 2, "stream": true})", R"({"prompt": "a", "logprobs": 21})",
        R"({"prompt": "a", "logprobs": true})", R"({"prompt": "a", "echo": 1})",
        R"({"prompt": ["a", "b"], "n": 100})"}) {
    const auto request = parse_completion_request(json_of(text), {});
    ASSERT_FALSE(request) << text;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_TRUE(request.error().param) << text;
  }
  EXPECT_TRUE(parse_completion_request(json_of(R"({"prompt": "a", "n": 2, "best_of": 2})"), {}));
  EXPECT_TRUE(parse_completion_request(json_of(R"({"prompt": "a", "n": 2, "best_of": 5})"), {}));
}

TEST(RequestParsing, generate_single_and_batch) {
  auto request = parse_generate_request(json_of(R"({"text": "a"})"), {});
  ASSERT_TRUE(request);
  EXPECT_FALSE(request->is_batch);
  EXPECT_EQ(request->items[0].generation.max_new_tokens, 128);

  request = parse_generate_request(json_of(R"({
    "text": ["a", "b"], "sampling_params": [{"temperature": 0}, {"max_new_tokens": 5}],
    "rid": ["x", "y"], "return_logprob": [true, false], "top_logprobs_num": 2,
    "logprob_start_len": [0, -1]})"),
                                   {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->is_batch);
  ASSERT_EQ(request->items.size(), 2u);
  EXPECT_EQ(request->items[0].generation.sampling.temperature, 0.0f);
  EXPECT_EQ(request->items[1].generation.sampling.temperature, 1.0f);
  EXPECT_EQ(request->items[1].generation.max_new_tokens, 5);
  EXPECT_EQ(request->items[0].rid, "x");
  EXPECT_EQ(request->items[1].rid, "y");
  EXPECT_TRUE(request->items[0].return_logprob);
  EXPECT_FALSE(request->items[1].return_logprob);
  EXPECT_EQ(request->items[0].logprob_start_len, 0);
  EXPECT_EQ(request->items[1].top_logprobs_num, 2);

  request = parse_generate_request(json_of(R"({"input_ids": [[1], [2]]})"), {});
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->is_batch);
  EXPECT_EQ(std::get<std::vector<TokenId>>(request->items[1].prompt), (std::vector<TokenId>{2}));
}

TEST(RequestParsing, bad_generate_requests) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "text"},
      {R"({"text": "a", "input_ids": [1]})", "text"},
      {R"({"text": 5})", "text"},
      {R"({"text": []})", "text"},
      {R"({"text": ["a", 5]})", "text[1]"},
      {R"({"input_ids": "x"})", "input_ids"},
      {R"({"input_ids": [1, "x"]})", "input_ids[1]"},
      {R"({"input_ids": [[1], 2]})", "input_ids[1]"},
      {R"({"text": "a", "sampling_params": 5})", "sampling_params"},
      {R"({"text": "a", "sampling_params": {"top_p": 2}})", "sampling_params.top_p"},
      {R"({"text": ["a", "b"], "sampling_params": [{}]})", "sampling_params"},
      {R"({"text": ["a", "b"], "sampling_params": [{}, {"n": 0}]})", "sampling_params[1].n"},
      {R"({"text": "a", "sampling_params": {"json_schema": "5"}})", "sampling_params.json_schema"},
      {R"({"text": "a", "return_logprob": 1})", "return_logprob"},
      {R"({"text": "a", "logprob_start_len": -2})", "logprob_start_len"},
      {R"({"text": "a", "stream": 1})", "stream"},
  };
  for (const auto& [text, param] : cases) {
    const auto request = parse_generate_request(json_of(text), {});
    ASSERT_FALSE(request) << text;
    EXPECT_EQ(request.error().param, param) << request.error().message;
  }
}

TEST(RequestParsing, integers_may_be_written_as_floats) {
  const auto request =
      parse_completion_request(json_of(R"({"prompt": "a", "max_tokens": 7.0})"), {});
  ASSERT_TRUE(request);
  EXPECT_EQ(request->openai.generation.max_new_tokens, 7);
}

TEST(ApiErrors, long_messages_are_cut_between_characters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\xC3\xA9";
  const std::string cut = shorten(text, 101);
  EXPECT_EQ(cut.size(), 103u);
  EXPECT_EQ(cut.substr(98), "\xC3\xA9...");
}

TEST(HttpMessage, percent_decoding) {
  EXPECT_EQ(percent_decode("/v1/models/a%2Fb"), "/v1/models/a/b");
  EXPECT_EQ(percent_decode("%41%"), "A%");
  EXPECT_EQ(percent_decode("%4"), "%4");
  EXPECT_EQ(percent_decode("%zz"), "%zz");
}

TEST(BestGenerations, HighestMeansFirst) {
  const double means[] = {-2.0, -0.5, -1.0, -0.5};
  EXPECT_EQ(best_generations(means, 3), std::vector<size_t>({1, 3, 2}));
  EXPECT_EQ(best_generations(means, 4), std::vector<size_t>({0, 1, 2, 3})) << "none is left out";
}

}  // namespace
}  // namespace tw
