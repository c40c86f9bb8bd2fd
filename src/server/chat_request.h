// POST /v1/chat/completions: the request.
#pragma once

#include <string>

#include "core/json.h"
#include "server/generation_options.h"

namespace tw {

enum class ToolChoice {
  none,  // the template does not see the tools
  automatic,
  required,  // at least one call
  named,     // one call, of that function
};

struct ChatRequest {
  OpenAiOptions openai;
  Json messages;         // checked: objects with a role, content of text
  Json tools = nullptr;  // checked: array of functions with names, or null
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string tool_name;  // with named
  bool parallel_tool_calls = true;
  Json template_kwargs = nullptr;  // object or null
  bool add_generation_prompt = true;
  bool separate_reasoning = true;  // reasoning_content apart from content
  bool logprobs = false;
  int32_t top_logprobs = 0;

  bool forces_call() const {
    return tool_choice == ToolChoice::required || tool_choice == ToolChoice::named;
  }
};

ApiExpected<ChatRequest> parse_chat_request(const Json& body, const RequestDefaults& defaults);

}  // namespace tw
