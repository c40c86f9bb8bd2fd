// POST /v1/chat/completions
#include <ctime>

#include "server/chat_request.h"
#include "server/endpoints/endpoints.h"
#include "server/generation_group.h"
#include "server/openai_response.h"

namespace tw {
namespace {

struct PreparedChat {
  ChatRequest request;
  std::vector<GenerationTask> tasks;
};

ApiExpected<PreparedChat> prepare_chat(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto request = parse_chat_request(*json, service.defaults());
  if (!request) return tl::unexpected(request.error());
  if (auto known = service.check_model(request->openai.model); !known) {
    return tl::unexpected(known.error());
  }
  const ServedModel& model = service.model();
  if (!model.chat_template) {
    return tl::unexpected(bad_field("messages", model.chat_template_problem));
  }
  const auto prompt = model.chat_template->render(
      request->messages, request->tools, request->add_generation_prompt, request->template_kwargs);
  if (!prompt) return tl::unexpected(to_api_error(prompt.error(), "messages"));
  // The template writes the special tokens itself.
  auto ids = service.encode(*prompt, false, "messages");
  if (!ids) return tl::unexpected(ids.error());

  PreparedChat prepared;
  prepared.tasks = make_tasks(service, std::move(*ids), request->openai.generation);
  for (GenerationTask& task : prepared.tasks) {
    task.return_logprob = request->logprobs;
    task.num_top_logprobs = request->top_logprobs;
    task.rid = request->openai.rid;
  }
  request->messages = nullptr;
  request->tools = nullptr;
  prepared.request = std::move(*request);
  return prepared;
}

// The fields that every answer and every chunk of a stream begin with.
Json envelope(const std::string& id, const char* object, const std::string& model) {
  return {{"id", id},
          {"object", object},
          {"created", static_cast<int64_t>(std::time(nullptr))},
          {"model", model}};
}

struct ChatChoice {
  std::string text;
  Json logprobs = Json::array();
  std::optional<GenerationEnd> end;
};

Json matched_stop_json(const std::optional<GenerationEnd>& end) {
  if (!end || end->reason != FinishReason::stop) return nullptr;
  if (end->matched_token) return *end->matched_token;
  return end->matched_string;
}

asio::awaitable<void> answer_whole(Service& service, Responder& responder,
                                   const ChatRequest& request, GenerationGroup& group) {
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
      choice.text += update.text;
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
         {"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
         {"logprobs", logprobs},
         {"finish_reason", finish_reason_json(choice.end)},
         {"matched_stop", matched_stop_json(choice.end)}});
  }
  answer["usage"] = usage.to_json();
  co_await responder.send(json_response(answer));
}

// Makes the chunks of one stream.
class ChatChunks {
 public:
  ChatChunks(Service& service, const ChatRequest& request)
      : tokenizer_(service.model().tokenizer),
        with_logprobs_(request.logprobs),
        with_usage_(request.openai.include_usage),
        chunk_(envelope(service.make_id("chatcmpl-"), "chat.completion.chunk",
                        service.model().name)) {}

  std::string role(size_t index) {
    return choice_event(index, {{"role", "assistant"}, {"content", ""}}, nullptr, {});
  }

  std::string update(const GenerationUpdate& update) {
    Json logprobs = nullptr;
    const auto tokens = shown_tokens(update);
    if (with_logprobs_ && !tokens.empty()) {
      logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
      append_chat_logprobs(tokenizer_, tokens, logprobs["content"]);
    }
    std::string events;
    // Text may be held back (half a character, a possible stop string); logprobs are not.
    if (!update.text.empty() || !logprobs.is_null()) {
      events = choice_event(update.index, {{"content", update.text}}, std::move(logprobs), {});
    }
    if (update.end) events += choice_event(update.index, Json::object(), nullptr, update.end);
    return events;
  }

  std::string usage(const UsageCounter& usage) {
    if (!with_usage_) return {};
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
                   {"finish_reason", finish_reason_json(end)}};
    if (end) choice["matched_stop"] = matched_stop_json(end);
    chunk_["choices"] = Json::array({std::move(choice)});
    if (with_usage_) chunk_["usage"] = nullptr;
    return sse_event(chunk_);
  }

  const Tokenizer& tokenizer_;
  const bool with_logprobs_;
  const bool with_usage_;
  Json chunk_;
};

asio::awaitable<void> answer_stream(Service& service, Responder& responder,
                                    const ChatRequest& request, GenerationGroup& group) {
  if (!co_await responder.begin_stream("text/event-stream; charset=utf-8")) co_return;
  ChatChunks chunks(service, request);
  UsageCounter usage(group.size(), request.openai.generation.n);
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
    co_await answer_stream(service, responder, prepared->request, **group);
  } else {
    co_await answer_whole(service, responder, prepared->request, **group);
  }
}

}  // namespace tw
