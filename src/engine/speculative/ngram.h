// Guesses without a model: what followed the last tokens when they came before in the same request
// (prompt lookup; Saxena, "Prompt Lookup Decoding", 2023).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/speculative/drafter.h"

namespace tw {

// Replaces `drafts` by at most `max_drafts` tokens that may follow `tokens`; none if the last two
// tokens never came before. Longer repetitions are preferred, then later ones.
void draft_by_ngram(std::span<const TokenId> tokens, int32_t max_drafts,
                    std::vector<TokenId>& drafts);

class NgramDrafter final : public Drafter {
 public:
  void propose(std::span<const DraftRequest> requests) override;
};

}  // namespace tw
