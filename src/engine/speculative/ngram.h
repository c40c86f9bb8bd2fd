// Guesses without a model: what followed the last tokens when they came before, in the same request
// or in earlier ones (prompt lookup; Saxena, "Prompt Lookup Decoding", 2023). The longer match
// decides.
#pragma once

#include "engine/speculative/drafter.h"
#include "engine/speculative/suffix_automaton.h"

namespace tw {

class NgramDrafter final : public Drafter {
 public:
  // Whether the texts of finished requests are kept for those that come.
  explicit NgramDrafter(bool keeps_texts) : keeps_texts_(keeps_texts) {}

  void follow(std::span<const ScheduledSequence> step, Matrix<const float> states) override;
  void propose(std::span<const DraftRequest> requests) override;
  void finish(const Sequence& sequence) override;
  void forget() override { earlier_.clear(); }

 private:
  void see(Sequence& sequence, int32_t num_tokens) const;

  static constexpr int32_t kEarlierTokens = 1 << 17;  // 13 MB of them
  static constexpr int32_t kOwnTokens = 1 << 14;

  const bool keeps_texts_;
  SuffixAutomaton earlier_{kEarlierTokens};
  std::vector<TokenId> guesses_;  // of one request
};

}  // namespace tw
