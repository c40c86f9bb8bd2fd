#include "server/message_parts.h"

#include "server/endpoints/endpoints.h"

namespace tw {

void MessageParts::add(const GenerationUpdate& update, ParsedText&& parsed) {
  usage_ = {update.num_prompt_tokens, update.num_cached_tokens, update.num_output_tokens};
  if (update.end) end_ = update.end;
  if (!parsed.reasoning.empty()) add_text(Part::reasoning, parsed.reasoning);
  if (!parsed.content.empty()) add_text(Part::text, parsed.content);
  for (const ToolCall& call : parsed.calls) {
    held_.clear();
    switch_to(Part::none);
    has_calls_ = true;
    on_call(call);
  }
}

void MessageParts::add_text(Part part, const std::string& text) {
  if (part == Part::text && part_ != Part::text) {
    held_ += text;
    if (held_.find_first_not_of(" \t\r\n") == std::string::npos) return;
    switch_to(part);
    on_delta(part, std::exchange(held_, {}));
    return;
  }
  switch_to(part);
  on_delta(part, text);
}

void MessageParts::switch_to(Part part) {
  if (part == part_) return;
  if (part_ != Part::none) on_close(part_);
  part_ = part;
  if (part_ != Part::none) on_open(part_);
}

void MessageParts::finish() {
  if (!held_.empty() && !has_calls_) {
    switch_to(Part::text);
    on_delta(Part::text, held_);
  }
  switch_to(Part::none);
  on_finish();
}

void MessageParts::emit(const std::string& type, const Json& data) {
  events_ += "event: " + type + "\ndata: " + dump_json(data) + "\n\n";
}

namespace {

// False when the answer is over: the client is gone, or an error took its place.
asio::awaitable<bool> run(Service& service, Responder& responder, ChatGeneration& chat,
                          GenerationGroup& group, MessageParts& parts,
                          HttpResponse (*to_error)(const ApiError&)) {
  const bool stream = chat.request.openai.stream;
  for (;;) {
    const auto updates = co_await group.next();
    if (updates.empty()) break;
    for (const GenerationUpdate& update : updates) {
      if (update.error && !stream) {
        co_await responder.send(to_error(to_api_error(*update.error)));
        co_return false;
      }
      if (update.error) {
        parts.fail(to_api_error(*update.error));
        std::string events = parts.take_events();
        if (co_await responder.write(std::move(events))) co_await responder.end_stream();
        co_return false;
      }
      parts.add(update, parse_update(service, chat, update));
    }
    std::string events = parts.take_events();
    if (stream && !events.empty() && !co_await responder.write(std::move(events))) co_return false;
  }
  co_return !group.cancelled();
}

}  // namespace

asio::awaitable<void> answer_in_parts(Service& service, Responder& responder, ChatGeneration chat,
                                      MessageParts& parts,
                                      HttpResponse (*to_error)(const ApiError&)) {
  const auto group = GenerationGroup::start(service, responder, std::move(chat.tasks));
  if (!group) {
    co_await responder.send(to_error(group.error()));
    co_return;
  }
  const bool stream = chat.request.openai.stream;
  if (stream && !co_await responder.begin_stream("text/event-stream; charset=utf-8")) co_return;
  parts.start();
  std::string events = parts.take_events();
  if (stream && !co_await responder.write(std::move(events))) co_return;
  if (!co_await run(service, responder, chat, **group, parts, to_error)) co_return;
  parts.finish();
  if (!stream) {
    HttpResponse response = json_response(parts.whole());
    co_await responder.send(std::move(response));
    co_return;
  }
  events = parts.take_events();
  if (co_await responder.write(std::move(events))) co_await responder.end_stream();
}

}  // namespace tw
