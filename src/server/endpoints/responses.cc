// POST /v1/responses: OpenAI's. Responses are not stored.
#include <ctime>

#include "server/chat_translation.h"
#include "server/endpoints/endpoints.h"
#include "server/message_parts.h"

namespace tw {
namespace {

// The fields that an answer repeats of its request.
Json echo_of(const Json& body) {
  Json echo = {{"instructions", nullptr},
               {"max_output_tokens", nullptr},
               {"metadata", Json::object()},
               {"parallel_tool_calls", true},
               {"previous_response_id", nullptr},
               {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
               {"store", false},
               {"temperature", 1.0},
               {"text", {{"format", {{"type", "text"}}}}},
               {"tool_choice", "auto"},
               {"tools", Json::array()},
               {"top_p", 1.0},
               {"truncation", "disabled"},
               {"user", nullptr}};
  for (auto& [name, value] : echo.items()) {
    const auto found = body.find(name);
    if (found != body.end() && !found->is_null() && name != "store") value = *found;
  }
  return echo;
}

class OpenAiResponse final : public MessageParts {
 public:
  OpenAiResponse(Service& service, Json echo)
      : service_(service),
        response_({{"id", service.make_id("resp_")},
                   {"object", "response"},
                   {"created_at", static_cast<int64_t>(std::time(nullptr))},
                   {"status", "in_progress"},
                   {"background", false},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", service.model().name},
                   {"output", Json::array()},
                   {"usage", nullptr}}) {
    response_.update(echo);
  }

  Json whole() override { return response_; }

 private:
  void on_start() override {
    response_event("response.created");
    response_event("response.in_progress");
  }

  void on_open(Part part) override {
    if (part == Part::text) {
      add_item({{"id", service_.make_id("msg_")},
                {"type", "message"},
                {"status", "in_progress"},
                {"role", "assistant"},
                {"content", Json::array()}});
    } else {
      add_item({{"id", service_.make_id("rs_")},
                {"type", "reasoning"},
                {"status", "in_progress"},
                {"summary", Json::array()},
                {"content", Json::array()}});
    }
    const Json empty = part == Part::text ? Json{{"type", "output_text"},
                                                 {"text", ""},
                                                 {"annotations", Json::array()},
                                                 {"logprobs", Json::array()}}
                                          : Json{{"type", "reasoning_text"}, {"text", ""}};
    item()["content"].push_back(empty);
    content_event("response.content_part.added", {{"part", empty}});
  }

  void on_delta(Part part, const std::string& text) override {
    item()["content"][0]["text"].get_ref<std::string&>() += text;
    Json more = {{"delta", text}};
    if (part == Part::text) more["logprobs"] = Json::array();
    content_event(name_of(part) + ".delta", more);
  }

  void on_close(Part part) override {
    Json more = {{"text", item()["content"][0]["text"]}};
    if (part == Part::text) more["logprobs"] = Json::array();
    content_event(name_of(part) + ".done", more);
    content_event("response.content_part.done", {{"part", item()["content"][0]}});
    close_item();
  }

  void on_call(const ToolCall& call) override {
    add_item({{"id", service_.make_id("fc_")},
              {"type", "function_call"},
              {"status", "in_progress"},
              {"call_id", call.id},
              {"name", call.name},
              {"arguments", ""}});
    item()["arguments"] = call.arguments;
    item_event("response.function_call_arguments.delta", {{"delta", call.arguments}});
    item_event("response.function_call_arguments.done",
               {{"name", call.name}, {"arguments", call.arguments}});
    close_item();
  }

  void on_error(const ApiError& error) override {
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"}, {"message", error.message}};
    response_event("response.failed");
  }

  void on_finish() override {
    const bool cut = end() && end()->reason == FinishReason::length;
    response_["status"] = cut ? "incomplete" : "completed";
    if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response_["usage"] = {{"input_tokens", usage().prompt_tokens},
                          {"input_tokens_details", {{"cached_tokens", usage().cached_tokens}}},
                          {"output_tokens", usage().completion_tokens},
                          {"output_tokens_details", {{"reasoning_tokens", 0}}},
                          {"total_tokens", usage().prompt_tokens + usage().completion_tokens}};
    response_event(cut ? "response.incomplete" : "response.completed");
  }

  static std::string name_of(Part part) {
    return part == Part::text ? "response.output_text" : "response.reasoning_text";
  }

  Json& item() { return response_["output"].back(); }
  size_t output_index() { return response_["output"].size() - 1; }

  void add_item(Json added) {
    response_["output"].push_back(std::move(added));
    event("response.output_item.added", {{"output_index", output_index()}, {"item", item()}});
  }

  void close_item() {
    item()["status"] = "completed";
    event("response.output_item.done", {{"output_index", output_index()}, {"item", item()}});
  }

  void item_event(const std::string& type, const Json& more) {
    Json data = {{"item_id", item()["id"]}, {"output_index", output_index()}};
    data.update(more);
    event(type, std::move(data));
  }

  void content_event(const std::string& type, const Json& more) {
    Json data = {{"content_index", 0}};
    data.update(more);
    item_event(type, data);
  }

  void response_event(const std::string& type) { event(type, {{"response", response_}}); }

  void event(const std::string& type, const Json& more) {
    Json data = {{"type", type}, {"sequence_number", sequence_number_++}};
    data.update(more);
    emit(type, data);
  }

  Service& service_;
  Json response_;
  int64_t sequence_number_ = 0;
};

struct PreparedResponse {
  ChatGeneration chat;
  Json echo;
};

ApiExpected<PreparedResponse> prepare_response(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto chat = chat_from_responses(*json);
  if (!chat) return tl::unexpected(chat.error());
  auto request = parse_chat_request(*chat, service.defaults());
  if (!request) return tl::unexpected(request.error());
  request->openai.generation.n = 1;
  request->logprobs = false;
  auto prepared = prepare_chat_generation(service, std::move(*request));
  if (!prepared) return tl::unexpected(prepared.error());
  return PreparedResponse{std::move(*prepared), echo_of(*json)};
}

}  // namespace

asio::awaitable<void> responses(Service& service, HttpRequest& request, Responder& responder) {
  auto prepared = co_await prepare_request(
      service, request, [&service](std::string body) { return prepare_response(service, body); });
  if (!prepared) {
    co_await responder.send(to_response(prepared.error()));
    co_return;
  }
  OpenAiResponse response(service, std::move(prepared->echo));
  co_await answer_in_parts(service, responder, std::move(prepared->chat), response, to_response);
}

}  // namespace tw
