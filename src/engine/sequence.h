// A request on its way through the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/page_pool.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/speculative/draft_length.h"
#include "engine/speculative/draft_tree.h"
#include "engine/speculative/ngram_state.h"
#include "engine/speculative/state_rows.h"
#include "nn/lora_adapter.h"

namespace tw {

// Pages of the branches of a tree of guesses but the first, each in place of the sequence's pages
// from `first` on.
struct BranchPages {
  int32_t first = 0;
  int32_t count = 0;          // of a branch
  std::vector<PageId> pages;  // [branches - 1, count]

  std::span<PageId> of(int32_t branch) {
    return std::span(pages).subspan(static_cast<size_t>((branch - 1) * count),
                                    static_cast<size_t>(count));
  }
  std::span<const PageId> of(int32_t branch) const {
    return std::span(pages).subspan(static_cast<size_t>((branch - 1) * count),
                                    static_cast<size_t>(count));
  }
};

struct Sequence {
  Request request;
  SamplerState sampler;
  std::vector<TokenId> tokens;  // prompt, then output
  std::vector<PageId> pages;    // of tokens [0, num_computed), and room for the next step
  int32_t state_slot = -1;      // of its recurrent states while it runs, see Batch
  int32_t num_computed = 0;     // tokens whose keys and values are in the cache
  DraftTree drafts;             // guesses of what follows tokens, verified in the next step
  BranchPages branch_pages;     // of these
  DraftLength draft_length;
  NgramState ngram;                  // where repetitions are guessed from
  int32_t num_drafter_computed = 0;  // tokens whose keys and values a drafter's cache has
  StateRows states;                  // of the last tokens, where a drafter wants them
  int32_t num_cached = 0;            // prompt tokens that the prefix cache had, at first admission
  bool admitted_before = false;
  bool prefix_shared = false;  // its prompt's pages were given to the prefix cache
  std::vector<TokenEvent> prompt_logprobs;
  PooledStates pooled;

  // What is asked for needs the computation of all of the prompt, also where the prefix cache has
  // its keys and values.
  bool reads_whole_prompt() const {
    return request.return_prompt_logprob || (request.pooling && *request.pooling != Pooling::last);
  }
  // Whose keys and values its own are like: sequences with another adapter compute others.
  uint64_t cache_space() const { return request.adapter ? request.adapter->id : 0; }
  int32_t num_prompt() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_output() const { return num_tokens() - num_prompt(); }
  // Tokens to compute before the next one can be sampled: 1 while decoding.
  int32_t num_remaining() const { return num_tokens() - num_computed; }
  // What comes next was generated, not given: preemption makes it come again.
  bool next_is_generated() const { return num_computed >= num_prompt(); }
  // The tokens to compute that are of one class: a share of a step is.
  int32_t num_remaining_of_class() const {
    return next_is_generated() ? num_remaining() : num_prompt() - num_computed;
  }
  bool decoding() const { return num_remaining() == 1; }
};

}  // namespace tw
