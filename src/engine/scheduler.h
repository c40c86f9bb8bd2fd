// Which sequences compute which tokens in the next step, and whose pages they use.
//
// Continuous batching: a step holds one token of every decoding sequence and up to
// chunked_prefill_size prompt tokens, generated ones first (see Batch). Pure logic: no threads, no
// clock, no model.
//
// Fairness. Requests are admitted in order of arrival. Of a step's prompt tokens the oldest prefill
// may take half before others get any, and what the others leave; the rest goes to those that are
// closest to their end. So a long prompt neither blocks short ones nor starves.
//
// Memory. A request is admitted when pages for its whole prompt can be had, with one page left for
// each running sequence. When a decoding sequence needs a page and neither a free one nor an
// evictable one is left, the youngest sequence is preempted: it gives its pages up, goes back to
// the head of the queue, and computes its tokens again later, with the same result.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/page_pool.h"
#include "engine/radix_cache.h"
#include "engine/sequence.h"
#include "nn/batch.h"

namespace tw {

struct SchedulerConfig {
  int32_t num_pages = 0;
  int32_t page_size = 16;
  int32_t chunked_prefill_size = 512;
  int32_t max_running_requests = 64;
  bool enable_prefix_cache = true;
  int32_t max_drafts = 0;          // of a sequence in a step
  bool drafter_has_cache = false;  // whose pages are shared as the model's are
  bool wants_all_states = false;   // final hidden states of all tokens that a drafter follows
};

// A sequence's share of a step.
struct ScheduledSequence {
  Sequence* sequence = nullptr;
  int32_t order = 0;        // in which it was chosen
  int32_t num_tokens = 0;   // computed in this step
  int32_t first_logit = 0;  // row of the step's logits where its rows begin
  int32_t num_logits = 0;   // 0 while the prompt goes on, unless its logprobs are wanted
  int32_t first_state = 0;  // row of the step's hidden states where its rows begin
  int32_t num_states = 0;   // of those, for a request that wants its prompt's embedding, or of
                            // all its tokens where a drafter wants them
  int32_t num_drafts = 0;  // of num_tokens, those that are guesses: the last, in their tree's order
  bool samples = false;    // the logits give its next token: the last row, or with
                           // drafts the last num_drafts + 1, each valid if the guess is right
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  void add(std::unique_ptr<Sequence> sequence);
  // Takes a sequence out, freeing its pages; null if there is none of that id.
  std::unique_ptr<Sequence> remove(uint64_t request_id);
  std::vector<std::unique_ptr<Sequence>> remove_all();

  // Gives a decoding sequence pages for its next token and as many guesses behind it as there is
  // free room for, at most `count`; returns that number.
  int32_t reserve_drafts(Sequence& sequence, int32_t count);
  // Gives the branches of its guesses pages, and takes those branches off that there is no free
  // room for. The caller copies the first page of each from the sequence's.
  void reserve_branches(Sequence& sequence);

  // Chooses the next step. Empty when nothing can run. The spans of batch() and the pointers are
  // valid until the next call of any non-const member.
  std::span<const ScheduledSequence> schedule();
  Batch batch() const { return builder_.batch(); }

  // A guess that the step computed behind the sequence's tokens was right and is one of them now.
  // Where it begins a branch, the sequence's pages are that branch's from here on.
  void accept_draft(Sequence& sequence, const DraftTree& drafts, int32_t node);
  // Guesses were looked at: their branches' pages are free.
  void release_branches(Sequence& sequence);
  // The step was computed: its tokens' keys and values are in the cache. Drafts count
  // only when accepted; what they wrote is overwritten otherwise.
  void commit();
  // The sequence is complete: its pages go to the prefix cache, or are freed.
  std::unique_ptr<Sequence> finish(Sequence& sequence);

  bool flush_prefix_cache();

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t capacity_tokens() const { return int64_t{config_.num_pages} * config_.page_size; }
  int64_t used_tokens() const;
  int64_t evictable_tokens() const;

  // For tests of invariants.
  const PagePool& pool() const { return pool_; }
  const RadixCache& prefix_cache() const { return cache_; }
  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }

 private:
  int32_t pages_for(int32_t num_tokens) const {
    return (num_tokens + config_.page_size - 1) / config_.page_size;
  }
  bool make_free(int32_t count);
  bool grow(Sequence& sequence, int32_t num_tokens);
  bool grow_or_preempt(Sequence& sequence, int32_t num_tokens);
  void preempt_youngest();
  bool shares_pages(const Sequence& sequence) const;
  void release_memory(Sequence& sequence, bool keep_in_cache);
  void admit_waiting();
  bool try_admit(Sequence& sequence);
  bool shares_running_prefill(const Sequence& sequence) const;
  void schedule_decodes();
  void schedule_prefills(size_t num_seen);
  void schedule_tokens(Sequence& sequence, int32_t num_tokens);
  void build_batch();
  void add_drafts(const Sequence& sequence, const ScheduledSequence& entry);
  void begin_branch(const Sequence& sequence, int32_t node, int32_t last_token);

  const SchedulerConfig config_;
  PagePool pool_;
  RadixCache cache_;
  std::vector<int32_t> free_state_slots_;           // a stack, at first the lowest on top
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first
  std::deque<std::unique_ptr<Sequence>> waiting_;   // next first
  int64_t num_preemptions_ = 0;

  std::vector<ScheduledSequence> scheduled_;
  std::vector<Sequence*> prefills_;
  BatchBuilder builder_;
  std::vector<PageId> branch_;  // pages of the branch that is being added
};

}  // namespace tw
