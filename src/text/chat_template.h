// Chat templates (Jinja, as Hugging Face checkpoints carry them): messages to prompt text.
//
// The environment is the one that Hugging Face's apply_chat_template sets up: trimmed blocks, loop
// controls, raise_exception, strftime_now, tojson as Python's json.dumps, generation blocks. A
// template is not trusted: its steps are bounded in proportion to its input. (Its memory is not
// where it doubles a list again and again: a hostile template can exhaust it.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/status.h"

namespace tw {

// In which forms a template can read what OpenAI's messages leave open. Found by rendering small
// conversations when the template is compiled.
struct ChatTemplateForms {
  bool content_parts = false;    // content as an array of typed parts, not only as a string
  bool null_content = true;      // null content beside tool calls; otherwise it takes ""
  bool argument_objects = true;  // tool call arguments as an object; otherwise as JSON text
};

class ChatTemplate {
 public:
  // `special_tokens` fills bos_token, eos_token, ... as templates expect them: of a JSON object
  // (say a tokenizer_config.json) the members named *_token, as strings or {"content": ...}.
  // A template that does not compile is invalid_argument with its line.
  static Expected<ChatTemplate> compile(std::string_view source, const Json& special_tokens);

  // `messages`: OpenAI's array, given to the template in the forms that it can read. `tools`: array
  // or null. `extra`: chat_template_kwargs, an object or null; its members become variables, but
  // messages, tools and add_generation_prompt. `unix_time`: what strftime_now takes as now, by
  // default the clock's time. What the template raises (raise_exception) or lacks is
  // invalid_argument.
  Expected<std::string> render(const Json& messages, const Json& tools, bool add_generation_prompt,
                               const Json& extra = nullptr,
                               std::optional<int64_t> unix_time = std::nullopt) const;

  const std::string& source() const;
  const ChatTemplateForms& forms() const;

 private:
  struct Handle;
  explicit ChatTemplate(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<const Handle> handle_;
};

}  // namespace tw
