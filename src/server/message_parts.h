// An answer as a row of parts (reasoning, text, calls), as OpenAI's responses and Anthropic's
// messages have it: one walk over the parsed text serves whole answers and streams.
#pragma once

#include <string>

#include "core/json.h"
#include "http/api_error.h"
#include "server/chat_generation.h"

namespace tw {

class MessageParts {
 public:
  virtual ~MessageParts() = default;

  // In this order; one of fail() and finish() is the last.
  void start() { on_start(); }
  void add(const GenerationUpdate& update, ParsedText&& parsed);
  void fail(const ApiError& error) { on_error(error); }
  void finish();

  // The complete answer.
  virtual Json whole() = 0;
  // The events since the last call.
  std::string take_events() { return std::exchange(events_, {}); }

 protected:
  enum class Part { none, reasoning, text };

  virtual void on_start() = 0;
  virtual void on_open(Part part) = 0;
  virtual void on_delta(Part part, const std::string& text) = 0;
  virtual void on_close(Part part) = 0;
  virtual void on_call(const ToolCall& call) = 0;
  virtual void on_error(const ApiError& error) = 0;
  virtual void on_finish() = 0;

  // event: <type>, data: <data>
  void emit(const std::string& type, const Json& data);

  bool has_calls() const { return has_calls_; }
  // Why and how it ended, and its token counts: of the last update.
  const std::optional<GenerationEnd>& end() const { return end_; }
  const Usage& usage() const { return usage_; }

 private:
  void switch_to(Part part);
  void add_text(Part part, const std::string& text);

  Part part_ = Part::none;
  std::string held_;  // white space that may turn out to be all of the text
  bool has_calls_ = false;
  std::optional<GenerationEnd> end_;
  Usage usage_;
  std::string events_;
};

// Runs the one generation of `chat` and answers with its parts.
asio::awaitable<void> answer_in_parts(Service& service, Responder& responder, ChatGeneration chat,
                                      MessageParts& parts,
                                      HttpResponse (*to_error)(const ApiError&));

}  // namespace tw
