// Chat templates (Jinja, as Hugging Face checkpoints carry them): messages to prompt text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/status.h"

namespace tw {

class ChatTemplate {
 public:
  // `special_tokens` fills bos_token, eos_token, ... as templates expect them, a JSON object.
  // A template that does not compile is an error with its line.
  static Expected<ChatTemplate> compile(std::string_view source, const Json& special_tokens);

  // `messages`: OpenAI's array. `tools`: array or null. `extra`: chat_template_kwargs, merged into
  // the variables. What the template raises (raise_exception) or lacks is invalid_argument.
  Expected<std::string> render(const Json& messages, const Json& tools, bool add_generation_prompt,
                               const Json& extra = nullptr) const;

  const std::string& source() const;

 private:
  struct Handle;
  std::shared_ptr<const Handle> handle_;
};

}  // namespace tw
