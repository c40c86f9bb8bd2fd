// POST /v1/messages and /v1/messages/count_tokens: Anthropic's.
#include "server/chat_translation.h"
#include "server/endpoints/endpoints.h"
#include "server/message_parts.h"

namespace tw {
namespace {

std::string error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

Json error_json(const ApiError& error) {
  return {{"type", "error"},
          {"error", {{"type", error_type(error.status)}, {"message", error.message}}}};
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response = to_response(error);
  response.body = dump_json(error_json(error));
  return response;
}

class AnthropicMessage final : public MessageParts {
 public:
  explicit AnthropicMessage(Service& service)
      : service_(service), id_(service.make_id("msg_")), model_(service.model().name) {}

  Json whole() override { return message(content_); }

 private:
  void on_start() override {
    Json start = message(Json::array());
    emit("message_start", {{"type", "message_start"}, {"message", std::move(start)}});
  }

  void on_open(Part part) override {
    open_block(part == Part::text
                   ? Json{{"type", "text"}, {"text", ""}}
                   : Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
  }

  void on_delta(Part part, const std::string& text) override {
    const char* key = part == Part::text ? "text" : "thinking";
    std::string& all = content_.back()[key].get_ref<std::string&>();
    all += text;
    block_delta({{"type", part == Part::text ? "text_delta" : "thinking_delta"}, {key, text}});
  }

  void on_close(Part part) override {
    if (part == Part::reasoning) {
      block_delta({{"type", "signature_delta"}, {"signature", ""}});
    }
    close_block();
  }

  void on_call(const ToolCall& call) override {
    open_block(
        {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}});
    if (auto input = parse_json(call.arguments, "arguments")) content_.back()["input"] = *input;
    block_delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
    close_block();
  }

  void on_error(const ApiError& error) override { emit("error", error_json(error)); }

  void on_finish() override {
    const Json delta = {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}};
    emit("message_delta", {{"type", "message_delta"}, {"delta", delta}, {"usage", usage_json()}});
    emit("message_stop", {{"type", "message_stop"}});
  }

  void open_block(Json block) {
    content_.push_back(block);
    emit(
        "content_block_start",
        {{"type", "content_block_start"}, {"index", index()}, {"content_block", std::move(block)}});
  }

  void block_delta(Json delta) {
    emit("content_block_delta",
         {{"type", "content_block_delta"}, {"index", index()}, {"delta", std::move(delta)}});
  }

  void close_block() {
    emit("content_block_stop", {{"type", "content_block_stop"}, {"index", index()}});
  }

  size_t index() const { return content_.size() - 1; }

  Json stop_reason() const {
    if (!end()) return nullptr;
    if (end()->reason == FinishReason::length) return "max_tokens";
    if (!end()->matched_string.empty()) return "stop_sequence";
    return has_calls() ? "tool_use" : "end_turn";
  }

  Json stop_sequence() const {
    return end() && !end()->matched_string.empty() ? Json(end()->matched_string) : Json();
  }

  // As Anthropic counts: input_tokens are those that no cache had.
  Json usage_json() const {
    return {{"input_tokens", usage().prompt_tokens - usage().cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage().cached_tokens},
            {"output_tokens", usage().completion_tokens}};
  }

  Json message(Json content) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", std::move(content)},
            {"stop_reason", stop_reason()},
            {"stop_sequence", stop_sequence()},
            {"usage", usage_json()}};
  }

  Service& service_;
  const std::string id_;
  const std::string model_;
  Json content_ = Json::array();
};

ApiExpected<ChatGeneration> prepare_messages(Service& service, const std::string& body,
                                             bool needs_max_tokens) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  auto chat = chat_from_messages(*json, needs_max_tokens);
  if (!chat) return tl::unexpected(chat.error());
  auto request = parse_chat_request(*chat, service.defaults());
  if (!request) return tl::unexpected(request.error());
  request->openai.generation.n = 1;
  return prepare_chat_generation(service, std::move(*request));
}

HttpResponse count_response(const ChatGeneration& chat) {
  return json_response({{"input_tokens", chat.tasks.front().prompt.size()}});
}

}  // namespace

asio::awaitable<void> messages(Service& service, HttpRequest& request, Responder& responder) {
  auto chat = co_await prepare_request(service, request, [&service](std::string body) {
    return prepare_messages(service, body, true);
  });
  if (!chat) {
    co_await responder.send(error_response(chat.error()));
    co_return;
  }
  AnthropicMessage message(service);
  co_await answer_in_parts(service, responder, std::move(*chat), message, error_response);
}

asio::awaitable<void> count_message_tokens(Service& service, HttpRequest& request,
                                           Responder& responder) {
  const auto chat = co_await prepare_request(service, request, [&service](std::string body) {
    return prepare_messages(service, body, false);
  });
  if (!chat) {
    co_await responder.send(error_response(chat.error()));
    co_return;
  }
  co_await responder.send(count_response(*chat));
}

}  // namespace tw
