#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace tw {

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config),
      pool_(config.num_pages),
      cache_(pool_, config.page_size),
      builder_(config.page_size,
               config.chunked_prefill_size + config.max_running_requests * (1 + config.max_drafts),
               config.max_running_requests) {
  const auto max_seqs = static_cast<size_t>(config.max_running_requests);
  running_.reserve(max_seqs);
  scheduled_.reserve(max_seqs);
  prefills_.reserve(max_seqs);
  for (int32_t slot = config.max_running_requests; slot-- > 0;) free_state_slots_.push_back(slot);
}

Scheduler::~Scheduler() {
  remove_all();
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::remove(uint64_t request_id) {
  const auto is_wanted = [request_id](const std::unique_ptr<Sequence>& sequence) {
    return sequence->request.id == request_id;
  };
  std::unique_ptr<Sequence> removed;
  if (const auto found = std::ranges::find_if(running_, is_wanted); found != running_.end()) {
    removed = std::move(*found);
    running_.erase(found);
    release_memory(*removed, true);
  } else if (const auto queued = std::ranges::find_if(waiting_, is_wanted);
             queued != waiting_.end()) {
    removed = std::move(*queued);
    waiting_.erase(queued);
  }
  return removed;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::remove_all() {
  std::vector<std::unique_ptr<Sequence>> removed;
  for (auto& sequence : running_) {
    release_memory(*sequence, false);
    removed.push_back(std::move(sequence));
  }
  for (auto& sequence : waiting_) removed.push_back(std::move(sequence));
  running_.clear();
  waiting_.clear();
  return removed;
}

// Evicts from the prefix cache until `count` pages are free, if that is possible.
bool Scheduler::make_free(int32_t count) {
  if (pool_.num_free() < count) cache_.evict(count - pool_.num_free());
  return pool_.num_free() >= count;
}

// Pages for the first `num_tokens` tokens of the sequence.
bool Scheduler::grow(Sequence& sequence, int32_t num_tokens) {
  const int32_t missing = pages_for(num_tokens) - static_cast<int32_t>(sequence.pages.size());
  if (missing <= 0) return true;
  if (!make_free(missing)) return false;
  for (int32_t i = 0; i < missing; ++i) sequence.pages.push_back(*pool_.allocate());
  return true;
}

// False when it was the sequence itself that had to go.
bool Scheduler::grow_or_preempt(Sequence& sequence, int32_t num_tokens) {
  while (!grow(sequence, num_tokens)) {
    const bool itself = running_.back().get() == &sequence;
    preempt_youngest();
    if (itself) return false;
  }
  return true;
}

void Scheduler::preempt_youngest() {
  std::unique_ptr<Sequence> youngest = std::move(running_.back());
  running_.pop_back();
  // What it computed may still be there when it comes back, if nobody needs the memory before.
  release_memory(*youngest, true);
  youngest->num_computed = 0;
  youngest->drafts.clear();
  youngest->prompt_logprobs.clear();
  youngest->pooled.clear();
  waiting_.push_front(std::move(youngest));
  ++num_preemptions_;
}

// A drafter computes only what it may have to guess for: a pooled prompt's pages lack its part.
bool Scheduler::shares_pages(const Sequence& sequence) const {
  return config_.enable_prefix_cache && !(config_.drafter_has_cache && sequence.request.pooling);
}

void Scheduler::release_memory(Sequence& sequence, bool keep_in_cache) {
  if (keep_in_cache && shares_pages(sequence)) {
    const int32_t complete = config_.drafter_has_cache
                                 ? std::min(sequence.num_computed, sequence.num_drafter_computed)
                                 : sequence.num_computed;
    cache_.insert(std::span(sequence.tokens).first(static_cast<size_t>(complete)), sequence.pages,
                  sequence.cache_space());
  }
  for (PageId page : sequence.pages) pool_.release(page);
  sequence.pages.clear();
  release_branches(sequence);
  free_state_slots_.push_back(std::exchange(sequence.state_slot, -1));
}

std::span<const ScheduledSequence> Scheduler::schedule() {
  scheduled_.clear();
  schedule_decodes();
  const size_t num_seen = running_.size();
  admit_waiting();
  schedule_prefills(num_seen);
  build_batch();
  return scheduled_;
}

// Drafts take room that nobody else is going to need: a page for each running sequence stays.
int32_t Scheduler::reserve_drafts(Sequence& sequence, int32_t count) {
  const int32_t pages =
      static_cast<int32_t>(sequence.pages.size()) + std::max(0, pool_.num_free() - num_running());
  count = std::min(count, pages * config_.page_size - sequence.num_tokens());
  return count > 0 && grow(sequence, sequence.num_tokens() + count) ? count : 0;
}

void Scheduler::reserve_branches(Sequence& sequence) {
  BranchPages& branches = sequence.branch_pages;
  TW_CHECK(branches.pages.empty());
  branches.first = sequence.num_computed / config_.page_size;
  branches.count = pages_for(sequence.num_tokens() + sequence.drafts.depth()) - branches.first;
  for (int32_t branch = 1; branch < sequence.drafts.num_branches(); ++branch) {
    if (pool_.num_free() - num_running() < branches.count) {
      sequence.drafts.drop_from_branch(branch);
      return;
    }
    for (int32_t i = 0; i < branches.count; ++i) branches.pages.push_back(*pool_.allocate());
  }
}

void Scheduler::accept_draft(Sequence& sequence, const DraftTree& drafts, int32_t node) {
  ++sequence.num_computed;
  if (!drafts.begins_branch(node)) return;
  std::ranges::swap_ranges(
      sequence.branch_pages.of(drafts.branch(node)),
      std::span(sequence.pages).subspan(static_cast<size_t>(sequence.branch_pages.first)));
}

void Scheduler::release_branches(Sequence& sequence) {
  for (PageId page : sequence.branch_pages.pages) pool_.release(page);
  sequence.branch_pages.pages.clear();
}

void Scheduler::schedule_decodes() {
  // Preemption only shortens running_ from its end.
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.decoding()) continue;
    const int32_t num_drafts = sequence.drafts.size();
    if (!grow_or_preempt(sequence, sequence.num_tokens() + sequence.drafts.depth())) break;
    schedule_tokens(sequence, 1);
    scheduled_.back().num_drafts = num_drafts;
    scheduled_.back().num_tokens += num_drafts;
  }
}

void Scheduler::admit_waiting() {
  for (size_t i = 0; i < waiting_.size() && num_running() < config_.max_running_requests;) {
    if (shares_running_prefill(*waiting_[i])) {
      ++i;  // its turn comes when the prefix that it shares is computed
      continue;
    }
    if (!try_admit(*waiting_[i])) break;
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(i));
  }
}

// True while another sequence computes whole pages that this one could take from the cache then.
bool Scheduler::shares_running_prefill(const Sequence& sequence) const {
  if (!config_.enable_prefix_cache || sequence.reads_whole_prompt()) return false;
  for (const auto& other : running_) {
    if (other->prefix_shared || other->num_computed >= other->num_prompt()) continue;
    if (other->cache_space() != sequence.cache_space()) continue;
    const size_t limit =
        std::min(static_cast<size_t>(other->num_prompt()), sequence.tokens.size() - 1);
    const auto mismatch =
        std::mismatch(sequence.tokens.begin(),
                      sequence.tokens.begin() + static_cast<int64_t>(limit), other->tokens.begin());
    const int64_t common =
        (mismatch.first - sequence.tokens.begin()) / config_.page_size * config_.page_size;
    if (common > 0 && common > cache_.match_length(sequence.tokens, sequence.cache_space()))
      return true;
  }
  return false;
}

bool Scheduler::try_admit(Sequence& sequence) {
  if (config_.enable_prefix_cache && !sequence.reads_whole_prompt()) {
    // The last token is always computed: its logits are wanted.
    sequence.pages = cache_.match(
        std::span(sequence.tokens).first(static_cast<size_t>(sequence.num_tokens() - 1)),
        sequence.cache_space());
  }
  const auto cached = static_cast<int32_t>(sequence.pages.size());
  const int32_t reserve = running_.empty() ? 0 : num_running();
  const int32_t missing = pages_for(sequence.num_tokens()) - cached;
  if (!make_free(missing + reserve)) {
    for (PageId page : sequence.pages) pool_.release(page);
    sequence.pages.clear();
    return false;
  }
  grow(sequence, sequence.num_tokens());
  sequence.state_slot = free_state_slots_.back();
  free_state_slots_.pop_back();
  sequence.num_computed = cached * config_.page_size;
  sequence.num_drafter_computed = sequence.num_computed;
  if (!sequence.admitted_before) {
    sequence.num_cached = sequence.num_computed;
    sequence.admitted_before = true;
  }
  return true;
}

// Of the first `num_seen` sequences, the decoding ones are scheduled already; of those admitted
// after, none is, although the cache may have left one only its last token.
void Scheduler::schedule_prefills(size_t num_seen) {
  prefills_.clear();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (i >= num_seen || !running_[i]->decoding()) prefills_.push_back(running_[i].get());
  }
  if (prefills_.empty()) return;
  int32_t budget = config_.chunked_prefill_size;
  const auto take = [&](Sequence& sequence, int32_t limit) {
    const int32_t count = std::min({sequence.num_remaining_of_class(), limit, budget});
    budget -= count;
    return count;
  };
  Sequence& oldest = *prefills_.front();
  int32_t of_oldest = take(oldest, std::max(1, config_.chunked_prefill_size / 2));
  std::stable_sort(prefills_.begin() + 1, prefills_.end(), [](Sequence* a, Sequence* b) {
    return a->num_remaining() < b->num_remaining();
  });
  for (size_t i = 1; i < prefills_.size() && budget > 0; ++i) {
    schedule_tokens(*prefills_[i], take(*prefills_[i], budget));
  }
  of_oldest += std::min(oldest.num_remaining_of_class() - of_oldest, budget);
  schedule_tokens(oldest, of_oldest);
}

void Scheduler::schedule_tokens(Sequence& sequence, int32_t num_tokens) {
  if (num_tokens == 0) return;
  ScheduledSequence entry;
  entry.sequence = &sequence;
  entry.order = static_cast<int32_t>(scheduled_.size());
  entry.num_tokens = num_tokens;
  entry.samples = num_tokens == sequence.num_remaining();
  scheduled_.push_back(entry);
}

void Scheduler::build_batch() {
  builder_.clear();
  // Generated tokens first. std::stable_partition would allocate.
  std::ranges::sort(scheduled_, {}, [](const ScheduledSequence& entry) {
    return std::pair(!entry.sequence->next_is_generated(), entry.order);
  });
  for (ScheduledSequence& entry : scheduled_) {
    const Sequence& sequence = *entry.sequence;
    const int32_t begin = sequence.num_computed;
    const int32_t end = begin + entry.num_tokens - entry.num_drafts;
    const bool all_logits = sequence.request.return_prompt_logprob && sequence.num_output() == 0;
    const std::optional<Pooling>& pooling = sequence.request.pooling;
    entry.first_logit = builder_.num_logits();
    entry.first_state = builder_.num_states();
    builder_.begin_sequence(begin, sequence.pages, sequence.next_is_generated(),
                            sequence.request.adapter.get(), sequence.state_slot);
    for (int32_t position = begin; position < end; ++position) {
      const bool is_last = entry.samples && position + 1 == end;
      builder_.add_token(sequence.tokens[static_cast<size_t>(position)],
                         all_logits || (is_last && !pooling),
                         pooling ? is_pooled(*pooling, position, sequence.num_prompt())
                                 : config_.wants_all_states);
    }
    add_drafts(sequence, entry);
    builder_.end_sequence();
    entry.num_logits = builder_.num_logits() - entry.first_logit;
    entry.num_states = builder_.num_states() - entry.first_state;
  }
}

// Behind the sequence's last token, which was added. A branch is a sequence of the batch.
void Scheduler::add_drafts(const Sequence& sequence, const ScheduledSequence& entry) {
  const int32_t last_token = builder_.num_tokens() - 1;
  for (int32_t node = 0; node < entry.num_drafts; ++node) {
    if (sequence.drafts.begins_branch(node)) {
      builder_.end_sequence();
      begin_branch(sequence, node, last_token);
    }
    builder_.add_token(sequence.drafts.token(node), true, config_.wants_all_states);
  }
}

// With the tokens between the sequence's last whole page and the branch: those from before this
// step were copied with their page, and those of this step are written there, too.
void Scheduler::begin_branch(const Sequence& sequence, int32_t node, int32_t last_token) {
  const BranchPages& branches = sequence.branch_pages;
  const std::span<const PageId> own = branches.of(sequence.drafts.branch(node));
  branch_.assign(sequence.pages.begin(), sequence.pages.begin() + branches.first);
  branch_.insert(branch_.end(), own.begin(), own.end());
  const int32_t root_position = sequence.num_computed;
  for (int32_t ancestor = sequence.drafts.parent(node);;
       ancestor = sequence.drafts.parent(ancestor)) {
    const int32_t position = root_position + sequence.drafts.depth(ancestor);
    builder_.copy_token(last_token + 1 + ancestor,
                        branch_[static_cast<size_t>(position / config_.page_size)]);
    if (ancestor == DraftTree::kRoot) break;
  }
  builder_.begin_sequence(root_position + sequence.drafts.depth(node), branch_, true,
                          sequence.request.adapter.get(), sequence.state_slot);
}

void Scheduler::commit() {
  for (const ScheduledSequence& entry : scheduled_) {
    Sequence& sequence = *entry.sequence;
    sequence.num_computed += entry.num_tokens - entry.num_drafts;
    const bool prompt_done = sequence.num_computed >= sequence.num_prompt();
    if (!prompt_done || sequence.prefix_shared || !shares_pages(sequence)) continue;
    // From here on others with the same prompt share it, also while this one goes on.
    cache_.insert(std::span(sequence.tokens).first(static_cast<size_t>(sequence.num_prompt())),
                  sequence.pages, sequence.cache_space());
    sequence.prefix_shared = true;
  }
}

std::unique_ptr<Sequence> Scheduler::finish(Sequence& sequence) {
  return remove(sequence.request.id);
}

bool Scheduler::flush_prefix_cache() {
  if (!idle()) return false;
  cache_.clear();
  return true;
}

int64_t Scheduler::used_tokens() const {
  return int64_t{pool_.num_pages() - pool_.num_free()} * config_.page_size;
}

int64_t Scheduler::evictable_tokens() const {
  return int64_t{cache_.num_evictable()} * config_.page_size;
}

}  // namespace tw
