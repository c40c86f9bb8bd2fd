// Puts sequences' tokens together into the batch of a step. Allocates nothing once it has held the
// largest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/page_pool.h"
#include "engine/request.h"
#include "nn/batch.h"

namespace tw {

class BatchBuilder {
 public:
  BatchBuilder(int32_t page_size, int32_t max_tokens, int32_t max_seqs);

  void clear();

  // The next sequence's tokens, from position `first` on, are those that add_token() gives until
  // end_sequence(). Sequences whose tokens were generated come before those whose were given.
  // `adapter`: of the sequence, which holds it; null for none. `state_slot`: see Batch.
  void begin_sequence(int32_t first, std::span<const PageId> pages, bool generated,
                      const LoraAdapter* adapter = nullptr, int32_t state_slot = 0);
  void add_token(TokenId token, bool wants_logits, bool wants_state = false);
  void end_sequence();
  // Writes the keys and values of a token that was added to its position in this page as well.
  void copy_token(int32_t token, PageId page);

  int32_t num_tokens() const { return static_cast<int32_t>(token_ids_.size()); }
  int32_t num_seqs() const { return static_cast<int32_t>(context_lens_.size()); }
  int32_t num_logits() const { return static_cast<int32_t>(logit_tokens_.size()); }
  int32_t num_states() const { return static_cast<int32_t>(state_tokens_.size()); }
  // Valid until the next call of a non-const member.
  Batch batch() const;

 private:
  const int32_t page_size_;
  std::span<const PageId> pages_;  // of the sequence that is being added
  int32_t position_ = 0;           // of its next token
  bool generated_ = false;

  std::vector<int32_t> token_ids_, positions_, seq_starts_, context_lens_, kv_slots_;
  std::vector<int32_t> page_tables_, page_table_starts_, logit_tokens_, state_tokens_;
  std::vector<int32_t> state_slots_;          // of each sequence
  std::vector<const LoraAdapter*> adapters_;  // of each sequence
  bool has_adapters_ = false;
  std::vector<KvCopy> kv_copies_;
  int32_t num_generated_tokens_ = 0;
};

}  // namespace tw
