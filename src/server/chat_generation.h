// From a chat request to generations and back to messages: what the chat APIs (OpenAI's chat and
// responses, Anthropic's messages) share.
#pragma once

#include <vector>

#include "server/chat_request.h"
#include "server/generation_group.h"
#include "text/text_parser.h"

namespace tw {

struct ChatGeneration {
  ChatRequest request;  // without its messages and tools
  std::vector<GenerationTask> tasks;
  std::vector<TextPipeline> parsers;  // one per task
};

// Finds the model and the adapter, renders, tokenizes, and sets up grammar and parsers.
ApiExpected<ChatGeneration> prepare_chat_generation(Service& service, ChatRequest request);

// What a choice's text turned out to be since its last update; with the end, all that was held
// back. Calls without an id get one.
ParsedText parse_update(Service& service, ChatGeneration& chat, const GenerationUpdate& update);

}  // namespace tw
