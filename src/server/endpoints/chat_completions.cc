// POST /v1/chat/completions
#include <ctime>

#include "server/chat_generation.h"
#include "server/endpoints/endpoints.h"
#include "server/generation_group.h"
#include "server/openai_response.h"

namespace tw {
namespace {

ApiExpected<ChatGeneration> prepare_chat(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto request = parse_chat_request(*json, service.defaults());
  if (!request) return tl::unexpected(request.error());
  return prepare_chat_generation(service, std::move(*request));
}

// The fields that every answer and every chunk of a stream begin with.
Json envelope(const std::string& id, const char* object, const std::string& model) {
  return {{"id", id},
          {"object", object},
          {"created", static_cast<int64_t>(std::time(nullptr))},
          {"model", model}};
}

struct ChatChoice {
  ParsedText message;
  Json logprobs = Json::array();
  std::optional<GenerationEnd> end;
};

Json matched_stop_json(const std::optional<GenerationEnd>& end) {
  if (!end || end->reason != FinishReason::stop) return nullptr;
  if (end->matched_token) return *end->matched_token;
  // A grammar ends a generation without a token or a string.
  return end->matched_string.empty() ? Json(nullptr) : Json(end->matched_string);
}

// `has_calls`: of the whole message.
Json finish_reason_json(const std::optional<GenerationEnd>& end, bool has_calls) {
  if (end && has_calls && end->reason == FinishReason::stop) return "tool_calls";
  return finish_reason_json(end);
}

Json call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json message_json(const ParsedText& message) {
  Json json = {{"role", "assistant"}, {"content", message.content}, {"refusal", nullptr}};
  const bool is_blank = message.content.find_first_not_of(" \n") == std::string::npos;
  if (is_blank && !message.calls.empty()) json["content"] = nullptr;
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  if (message.calls.empty()) return json;
  Json& calls = json["tool_calls"] = Json::array();
  for (const ToolCall& call : message.calls) calls.push_back(call_json(call));
  return json;
}

asio::awaitable<void> answer_whole(Service& service, Responder& responder, ChatGeneration& chat,
                                   GenerationGroup& group) {
  const ChatRequest& request = chat.request;
  std::vector<ChatChoice> choices(group.size());
  UsageCounter usage(group.size(), request.openai.generation.n);
  for (;;) {
    const auto updates = co_await group.next();
    if (updates.empty()) break;
    for (const GenerationUpdate& update : updates) {
      if (update.error) {
        co_await responder.send(to_response(to_api_error(*update.error)));
        co_return;
      }
      ChatChoice& choice = choices[update.index];
      append(parse_update(service, chat, update), choice.message);
      choice.end = update.end;
      if (request.logprobs) {
        append_chat_logprobs(service.model().tokenizer, shown_tokens(update), choice.logprobs);
      }
      usage.record(update);
    }
  }
  if (group.cancelled()) co_return;
  Json answer = envelope(service.make_id("chatcmpl-"), "chat.completion", service.model().name);
  Json& list = answer["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    ChatChoice& choice = choices[i];
    const Json logprobs = request.logprobs
                              ? Json{{"content", std::move(choice.logprobs)}, {"refusal", nullptr}}
                              : Json(nullptr);
    list.push_back(
        {{"index", i},
         {"message", message_json(choice.message)},
         {"logprobs", logprobs},
         {"finish_reason", finish_reason_json(choice.end, !choice.message.calls.empty())},
         {"matched_stop", matched_stop_json(choice.end)}});
  }
  answer["usage"] = usage.to_json();
  co_await responder.send(json_response(answer));
}

// Makes the chunks of one stream.
class ChatChunks {
 public:
  ChatChunks(Service& service, ChatGeneration& chat)
      : service_(service),
        chat_(chat),
        num_calls_(chat.parsers.size()),
        chunk_(envelope(service.make_id("chatcmpl-"), "chat.completion.chunk",
                        service.model().name)) {}

  std::string role(size_t index) {
    return choice_event(index, {{"role", "assistant"}, {"content", ""}}, nullptr, {});
  }

  std::string update(const GenerationUpdate& update) {
    Json logprobs = nullptr;
    const auto tokens = shown_tokens(update);
    if (chat_.request.logprobs && !tokens.empty()) {
      logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
      append_chat_logprobs(service_.model().tokenizer, tokens, logprobs["content"]);
    }
    std::string events;
    const ParsedText parsed = parse_update(service_, chat_, update);
    if (!parsed.reasoning.empty()) {
      events += choice_event(update.index, {{"reasoning_content", parsed.reasoning}},
                             std::exchange(logprobs, nullptr), {});
    }
    // Text may be held back (half a character, a possible stop string); logprobs are not.
    if (!parsed.content.empty() || !logprobs.is_null()) {
      events += choice_event(update.index, {{"content", parsed.content}}, std::move(logprobs), {});
    }
    for (const ToolCall& call : parsed.calls) {
      Json delta = call_json(call);
      delta["index"] = num_calls_[update.index]++;
      events += choice_event(update.index, {{"tool_calls", Json::array({std::move(delta)})}},
                             nullptr, {});
    }
    if (update.end) events += choice_event(update.index, Json::object(), nullptr, update.end);
    return events;
  }

  std::string usage(const UsageCounter& usage) {
    if (!chat_.request.openai.include_usage) return {};
    chunk_["choices"] = Json::array();
    chunk_["usage"] = usage.to_json();
    return sse_event(chunk_);
  }

 private:
  std::string choice_event(size_t index, Json delta, Json logprobs,
                           const std::optional<GenerationEnd>& end) {
    Json choice = {{"index", index},
                   {"delta", std::move(delta)},
                   {"logprobs", std::move(logprobs)},
                   {"finish_reason", finish_reason_json(end, num_calls_[index] > 0)}};
    if (end) choice["matched_stop"] = matched_stop_json(end);
    chunk_["choices"] = Json::array({std::move(choice)});
    if (chat_.request.openai.include_usage) chunk_["usage"] = nullptr;
    return sse_event(chunk_);
  }

  Service& service_;
  ChatGeneration& chat_;
  std::vector<int32_t> num_calls_;  // of each choice, so far
  Json chunk_;
};

asio::awaitable<void> answer_stream(Service& service, Responder& responder, ChatGeneration& chat,
                                    GenerationGroup& group) {
  if (!co_await responder.begin_stream("text/event-stream; charset=utf-8")) co_return;
  ChatChunks chunks(service, chat);
  UsageCounter usage(group.size(), chat.request.openai.generation.n);
  std::string events;
  for (size_t i = 0; i < group.size(); ++i) events += chunks.role(i);
  for (;;) {
    if (!events.empty() && !co_await responder.write(std::move(events))) co_return;
    events.clear();
    const auto updates = co_await group.next();
    if (updates.empty()) break;
    for (const GenerationUpdate& update : updates) {
      usage.record(update);
      events +=
          update.error ? sse_event(to_json(to_api_error(*update.error))) : chunks.update(update);
    }
  }
  if (group.cancelled()) co_return;
  events = chunks.usage(usage) + kSseDone;
  if (co_await responder.write(std::move(events))) co_await responder.end_stream();
}

}  // namespace

asio::awaitable<void> chat_completions(Service& service, HttpRequest& request,
                                       Responder& responder) {
  auto prepared = co_await prepare_request(
      service, request, [&service](std::string body) { return prepare_chat(service, body); });
  if (!prepared) {
    co_await responder.send(to_response(prepared.error()));
    co_return;
  }
  const auto group = GenerationGroup::start(service, responder, std::move(prepared->tasks));
  if (!group) {
    co_await responder.send(to_response(group.error()));
  } else if (prepared->request.openai.stream) {
    co_await answer_stream(service, responder, *prepared, **group);
  } else {
    co_await answer_whole(service, responder, *prepared, **group);
  }
}

}  // namespace tw
