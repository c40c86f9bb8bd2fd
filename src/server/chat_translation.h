// Requests of other chat APIs as OpenAI chat requests.
//
// The fields that only exist there are translated; those of the same name and meaning (temperature,
// stream, SGLang's extensions ...) are left for parse_chat_request, whose errors name the chat
// API's fields.
#pragma once

#include "core/json.h"
#include "http/api_error.h"

namespace tw {

// OpenAI's POST /v1/responses.
ApiExpected<Json> chat_from_responses(const Json& body);

// Anthropic's POST /v1/messages. `needs_max_tokens`: not for counting.
ApiExpected<Json> chat_from_messages(const Json& body, bool needs_max_tokens);

}  // namespace tw
