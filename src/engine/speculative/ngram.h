// Drafts without a model: what followed the last tokens when they came before in the same request
// (prompt lookup; Saxena, "Prompt Lookup Decoding", 2023), and how many of them pay.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace tw {

// Replaces `drafts` by at most `max_drafts` tokens that may follow `tokens`; none if the last two
// tokens never came before. Longer repetitions are preferred, then later ones.
void draft_by_ngram(std::span<const TokenId> tokens, int32_t max_drafts,
                    std::vector<TokenId>& drafts);

// How many tokens of one request to draft: more while all are right, fewer, and then none for a
// growing number of steps, while they are wrong.
class DraftLength {
 public:
  // Of the next step, at most `limit`; 0 during a pause. Call once per step.
  int32_t next(int32_t limit);
  void observe(int32_t num_drafts, int32_t num_accepted);

 private:
  int32_t length_ = 4;
  int32_t pause_ = 0;       // after the next failure
  int32_t steps_left_ = 0;  // of the running pause
};

}  // namespace tw
