// What OpenAI's two generating endpoints share in their answers.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "server/generation_group.h"

namespace tw {

// Adds up the token counts of a request's choices; prompts shared by n choices count once.
class UsageCounter {
 public:
  UsageCounter(size_t num_choices, int32_t choices_per_prompt)
      : counts_(num_choices), choices_per_prompt_(static_cast<size_t>(choices_per_prompt)) {}

  void record(const GenerationUpdate& update);
  Json to_json() const;

 private:
  std::vector<Usage> counts_;
  size_t choices_per_prompt_;
};

// "stop", "length" or "abort".
Json finish_reason_json(const std::optional<GenerationEnd>& end);

// One server-sent event.
std::string sse_event(const Json& data);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";

// Tokens of an update that belong to its text: a stop token does not.
std::span<const TokenEvent> shown_tokens(const GenerationUpdate& update);

// Chat's logprobs.content entries.
void append_chat_logprobs(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens,
                          Json& content);

// Completions' logprobs: parallel arrays. `offset` is where the next token's text begins, in code
// points, and moves on.
Json empty_completion_logprobs();
void append_completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenEvent> tokens,
                                bool first_has_no_logprob, int32_t num_top, size_t& offset,
                                Json& logprobs);

}  // namespace tw
