// Where guesses of the next tokens come from. There is one drafter for all requests of an engine;
// it runs on the engine thread. Wrong guesses cost time, never change the output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/status.h"
#include "core/tensor.h"
#include "engine/sequence.h"
#include "nn/batch.h"

namespace tw {

struct ScheduledSequence;

// A decoding sequence that may be given guesses: what Sequence::drafts holds after. It has pages
// for `limit` > 0 tokens behind its last one.
struct DraftRequest {
  Sequence* sequence = nullptr;
  int32_t limit = 0;       // the tree's depth, at most ...
  int32_t num_drafts = 0;  // ... and its nodes
  int32_t width = 1;       // guesses that are gone on from at each depth; 1: a chain
  float least_chance = 0;  // a guess that is less likely does not pay
};

// Of all requests of a step.
inline constexpr int32_t kMaxDraftsOfAll = 32;

class Drafter {
 public:
  virtual ~Drafter() = default;

  // A drafter with keys and values of its own keeps them in the model's pages: page p of its cache
  // belongs to the sequences that have page p, so that prefixes are shared and evicted together.
  virtual int64_t kv_bytes_per_token() const { return 0; }
  virtual Status prepare(int64_t num_pages, int32_t page_size, int32_t chunked_prefill_size,
                         int32_t max_num_seqs) {
    return {};
  }
  virtual void adopt_caller() {}

  // Whether follow() needs the model's next_token_states() of all tokens, but of pooled prompts,
  // which nothing is guessed for.
  virtual bool wants_states() const { return false; }

  // The model has computed these sequences' shares of a step; nothing is sampled from it yet, and
  // no guess known to be right. `states`: see ScheduledSequence::first_state.
  virtual void follow(std::span<const ScheduledSequence> step, Matrix<const float> states) {}
  // Then, of what is sampled: a guess was right. `state`: see ScheduledSequence::first_state; null
  // where none are wanted.
  virtual void accept(Sequence& sequence, const float* state) {}
  // The tokens of the sequence's last page lie in the page `to` from here on.
  virtual void move_page(PageId from, PageId to) {}

  virtual void propose(std::span<const DraftRequest> requests) = 0;

  // The sequence has ended, and goes.
  virtual void finish(const Sequence& sequence) {}
  // Drops what is kept of those that went, as the prefix cache does.
  virtual void forget() {}
};

}  // namespace tw
