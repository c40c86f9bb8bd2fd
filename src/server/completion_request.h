// POST /v1/completions: the request.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/json.h"
#include "server/generation_options.h"

namespace tw {

struct CompletionRequest {
  OpenAiOptions openai;
  std::vector<PromptInput> prompts;  // at least one
  bool echo = false;
  int32_t best_of = 1;  // generations of each prompt, n of which are answered; at least n
  std::optional<int32_t> logprobs;  // number of alternatives; 0: the chosen token's alone
};

ApiExpected<CompletionRequest> parse_completion_request(const Json& body,
                                                        const RequestDefaults& defaults);

// Which generations of one prompt are answered: the n of the highest mean log-probability of their
// tokens, best first; all of them in order where none is left out.
std::vector<size_t> best_generations(std::span<const double> mean_logprobs, int32_t n);

}  // namespace tw
