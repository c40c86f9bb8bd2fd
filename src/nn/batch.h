// One step's work for a model: tokens of several sequences, flattened.
//
// A sequence contributes one token (decode) or several (a chunk of its prompt). The engine fills
// the arrays; models only read them. All spans point into memory that the engine reuses from step
// to step.
//
// Tokens that were generated come before those of prompts: the two classes of rows may have kernels
// of their own. A sequence's share of a step is of one class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace tw {

struct LoraAdapter;

// The keys and values of a token at one more place: where another branch of a tree of guesses, a
// sequence of its own here, has its copy of what lies before it.
struct KvCopy {
  int32_t token;
  int32_t slot;
};

struct Batch {
  std::span<const int32_t> token_ids;   // [num_tokens]
  std::span<const int32_t> positions;   // [num_tokens] position in the sequence, from 0
  std::span<const int32_t> seq_starts;  // [num_seqs + 1] seq s owns tokens [starts[s], starts[s+1])
  std::span<const int32_t> context_lens;  // [num_seqs] tokens in the cache after this step
  std::span<const int32_t> kv_slots;      // [num_tokens] page_id * page_size + offset, where the
                                          // token's keys and values are written
  std::span<const int32_t> page_tables;   // concatenated page ids of all sequences
  std::span<const int32_t> page_table_starts;  // [num_seqs + 1] offsets into page_tables
  std::span<const int32_t> logit_tokens;  // [num_logits] token indices whose logits are wanted,
                                          // ascending
  int32_t num_generated_tokens = 0;       // tokens [0, num_generated_tokens) were generated
  std::span<const int32_t> state_tokens = {};  // [num_states] token indices whose final hidden
                                               // states are wanted, ascending
  // [num_seqs] where each sequence has its recurrent states, below max_num_seqs; a sequence keeps
  // its slot from its position 0 on. Empty for models without such states.
  std::span<const int32_t> state_slots = {};
  // [num_seqs] adapter of each sequence, null for none; empty where no sequence has one
  std::span<const LoraAdapter* const> adapters = {};

  std::span<const KvCopy> kv_copies = {};

  int32_t num_tokens() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_seqs() const { return static_cast<int32_t>(context_lens.size()); }
  int32_t num_logits() const { return static_cast<int32_t>(logit_tokens.size()); }
  int32_t num_states() const { return static_cast<int32_t>(state_tokens.size()); }
  // The rows of logits that belong to generated tokens come first, too.
  int32_t num_generated_logits() const {
    return static_cast<int32_t>(std::ranges::lower_bound(logit_tokens, num_generated_tokens) -
                                logit_tokens.begin());
  }
};

}  // namespace tw
