#include "engine/speculative/ngram.h"

#include <algorithm>

#include "engine/scheduler.h"

namespace tw {

// Prompts chunk by chunk: a long one at once would hold up everybody's next token.
void NgramDrafter::follow(std::span<const ScheduledSequence> step, Matrix<const float> states) {
  for (const ScheduledSequence& entry : step) {
    if (!entry.sequence->request.pooling) see(*entry.sequence, entry.sequence->num_computed);
  }
}

void NgramDrafter::see(Sequence& sequence, int32_t num_tokens) const {
  NgramState& state = sequence.ngram;
  if (!state.own) {
    state.own = std::make_unique<SuffixAutomaton>(kOwnTokens);
    state.num_seen = std::max(0, sequence.num_prompt() - kOwnTokens);
  }
  const std::span<const TokenId> tokens = sequence.tokens;
  for (; state.num_seen < num_tokens; ++state.num_seen) {
    const auto index = static_cast<size_t>(state.num_seen);
    state.own->append(tokens[index]);
    state.earlier = earlier_.advance(state.earlier, tokens.first(index), tokens[index]);
  }
}

void NgramDrafter::propose(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    Sequence& sequence = *request.sequence;
    see(sequence, sequence.num_tokens());
    guesses_.clear();
    const NgramState& state = sequence.ngram;
    const SuffixAutomaton::Match own = state.own->last_repetition();
    const bool earlier_is_longer = state.earlier.length > own.length;
    (earlier_is_longer ? earlier_ : *state.own)
        .continue_from(earlier_is_longer ? state.earlier : own, request.limit, guesses_);
    for (const TokenId guess : guesses_) sequence.drafts.append(guess);
  }
}

// What the prefix cache had of the prompt came from a request that finished before.
void NgramDrafter::finish(const Sequence& sequence) {
  if (!keeps_texts_ || sequence.num_output() == 0) return;
  constexpr int32_t kSharedContext = 16;
  const int32_t begin = std::max(
      {0, sequence.num_cached - kSharedContext, sequence.num_tokens() - kEarlierTokens / 4});
  earlier_.append(SuffixAutomaton::kSeparator);
  for (int32_t i = begin; i < sequence.num_tokens(); ++i) {
    earlier_.append(sequence.tokens[static_cast<size_t>(i)]);
  }
}

}  // namespace tw
