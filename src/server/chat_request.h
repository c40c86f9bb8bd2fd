// POST /v1/chat/completions: the request.
#pragma once

#include "core/json.h"
#include "server/generation_options.h"

namespace tw {

struct ChatRequest {
  OpenAiOptions openai;
  Json messages;                   // checked: objects with a role, content of text
  Json tools = nullptr;            // array or null, handed to the template
  Json template_kwargs = nullptr;  // object or null
  bool add_generation_prompt = true;
  bool logprobs = false;
  int32_t top_logprobs = 0;
};

ApiExpected<ChatRequest> parse_chat_request(const Json& body, const RequestDefaults& defaults);

}  // namespace tw
