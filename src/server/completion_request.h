// POST /v1/completions: the request.
#pragma once

#include <optional>
#include <vector>

#include "core/json.h"
#include "server/generation_options.h"

namespace tw {

struct CompletionRequest {
  OpenAiOptions openai;
  std::vector<PromptInput> prompts;  // at least one
  bool echo = false;
  std::optional<int32_t> logprobs;  // number of alternatives; 0: the chosen token's alone
};

ApiExpected<CompletionRequest> parse_completion_request(const Json& body,
                                                        const RequestDefaults& defaults);

}  // namespace tw
