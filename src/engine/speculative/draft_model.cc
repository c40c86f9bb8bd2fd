#include "engine/speculative/draft_model.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "engine/scheduler.h"

namespace tw {
namespace {

// Rows of one sequence when it asks for guesses: what came since its last whole page, and guesses.
constexpr int32_t kRoomForGuesses = 65;

Matrix<const float> rows_of(Matrix<const float> matrix, int64_t first, int64_t count) {
  return {matrix.row(first), count, matrix.cols, matrix.row_stride};
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<GuessingModel> model, int64_t vocab_size, bool draws_trees,
                       const CpuFeatures& features)
    : model_(std::move(model)),
      draws_trees_(draws_trees),
      limits_(model_->limits()),
      vocab_size_(std::min(vocab_size, limits_.vocab_size)),
      kernels_(kernels::select_logits(features)) {}

int64_t DraftModel::kv_bytes_per_token() const {
  return limits_.kv_bytes_per_token;
}

Status DraftModel::prepare(int64_t num_pages, int32_t page_size, int32_t chunked_prefill_size,
                           int32_t max_num_seqs) {
  page_size_ = page_size;
  num_pages_ = num_pages;
  max_seqs_ = std::max(max_num_seqs, kMaxDraftsOfAll);
  max_tokens_ = std::max(chunked_prefill_size + max_num_seqs, page_size + kRoomForGuesses);
  builder_.emplace(page_size, max_tokens_, max_seqs_);
  return model_->prepare(num_pages + most_branch_pages(), page_size, max_tokens_, max_seqs_);
}

// Of all requests' branches together there are no more than guesses.
int64_t DraftModel::most_branch_pages() const {
  return draws_trees_ ? kMaxDraftsOfAll * (kRoomForGuesses / page_size_ + 2) : 0;
}

int32_t DraftModel::within_context(int32_t num_tokens) const {
  return static_cast<int32_t>(std::min<int64_t>(num_tokens, limits_.max_position_embeddings));
}

void DraftModel::follow(std::span<const ScheduledSequence> step, Matrix<const float> states) {
  for (const ScheduledSequence& entry : step) {
    Sequence& sequence = *entry.sequence;
    if (sequence.request.pooling) continue;
    const int32_t begin = sequence.num_computed - (entry.num_tokens - entry.num_drafts);
    if (wants_states()) {
      const int32_t num_known = entry.num_states - entry.num_drafts;
      sequence.states.put(begin, rows_of(states, entry.first_state, num_known));
    }
    const bool completes_page =
        sequence.num_computed / page_size_ > sequence.num_drafter_computed / page_size_;
    if (begin < sequence.num_prompt() || completes_page) compute(sequence, sequence.num_computed);
  }
  flush();
}

void DraftModel::accept(Sequence& sequence, const float* state) {
  if (!wants_states()) return;
  sequence.states.put(sequence.num_computed - 1,
                      {state, 1, limits_.hidden_size, limits_.hidden_size});
}

void DraftModel::move_page(PageId from, PageId to) {
  model_->copy_page(to_index(from), to_index(to));
}

// Keys and values of the sequence's tokens before `end`, at the latest at the next flush().
void DraftModel::compute(Sequence& sequence, int32_t end) {
  while (sequence.num_drafter_computed < within_context(end)) {
    if (builder_->num_tokens() == max_tokens_ || builder_->num_seqs() == max_seqs_) flush();
    const int32_t begin = sequence.num_drafter_computed;
    const int32_t count =
        std::min(within_context(end) - begin, max_tokens_ - builder_->num_tokens());
    builder_->begin_sequence(begin, sequence.pages, false);
    for (int32_t i = begin; i < begin + count; ++i) add_token(sequence, i, false);
    builder_->end_sequence();
    sequence.num_drafter_computed += count;
  }
  // Behind its context there is nothing to do.
  sequence.num_drafter_computed = std::max(sequence.num_drafter_computed, end);
  sequence.states.drop_before(end - 1);
}

void DraftModel::add_token(const Sequence& sequence, int32_t position, bool wants_guess) {
  builder_->add_token(sequence.tokens[static_cast<size_t>(position)], wants_guess,
                      wants_guess && wants_states());
  if (!wants_states()) return;
  if (const float* state = sequence.states.find(position - 1)) {
    previous_.insert(previous_.end(), state, state + limits_.hidden_size);
  } else {
    previous_.resize(previous_.size() + static_cast<size_t>(limits_.hidden_size), 0.0f);
  }
}

Matrix<const float> DraftModel::forward() {
  Matrix<const float> previous;
  if (wants_states()) {
    previous =
        read_only(dense_matrix(previous_.data(), builder_->num_tokens(), limits_.hidden_size));
  }
  const Matrix<const float> logits = model_->forward(builder_->batch(), previous);
  builder_->clear();
  previous_.clear();
  return logits;
}

void DraftModel::flush() {
  if (builder_->num_tokens() > 0) forward();
}

void DraftModel::propose(std::span<const DraftRequest> requests) {
  group_.clear();
  int32_t num_rows = 0;
  for (DraftRequest request : requests) {
    const Sequence& sequence = *request.sequence;
    const int32_t end = within_context(sequence.num_tokens() + request.limit);
    request.limit = end - sequence.num_tokens();
    if (request.limit <= 0) continue;
    const int32_t rows = sequence.num_tokens() - sequence.num_drafter_computed;
    if (num_rows + rows > max_tokens_) {
      guess(group_);
      group_.clear();
      num_rows = 0;
    }
    group_.push_back(request);
    num_rows += rows;
  }
  if (!group_.empty()) guess(group_);
}

// All levels of guesses for sequences whose first rows fit into one batch. Deepest first: those
// that go on are always the first ones.
void DraftModel::guess(std::span<DraftRequest> group) {
  std::ranges::sort(group, std::greater(), &DraftRequest::limit);
  growths_.resize(std::max(growths_.size(), group.size()));
  num_branch_pages_ = 0;
  for (size_t i = 0; i < group.size(); ++i) begin_growth(group[i], growths_[i]);
  size_t num_growing = group.size();
  for (int32_t level = 0; level < group.front().limit; ++level) {
    while (num_growing > 0 && growths_[num_growing - 1].request.limit <= level) --num_growing;
    for (size_t i = 0; i < num_growing; ++i) add_level(growths_[i], level);
    if (builder_->num_tokens() == 0) break;
    const Matrix<const float> logits = forward();
    int64_t row = 0;
    for (size_t i = 0; i < num_growing; ++i) grow(growths_[i], level, logits, row);
  }
  for (size_t i = 0; i < group.size(); ++i) end_growth(growths_[i]);
}

void DraftModel::begin_growth(const DraftRequest& request, Growth& growth) {
  growth.request = request;
  growth.request.width = std::min(request.width, request.num_drafts);
  growth.tree.begin(growth.request.width, request.least_chance);
  const int32_t num_tokens = request.sequence->num_tokens();
  growth.first_page = num_tokens / page_size_;
  growth.num_pages = (num_tokens + request.limit - 1) / page_size_ + 1 - growth.first_page;
  growth.first_branch_page = num_pages_ + num_branch_pages_;
  num_branch_pages_ += (growth.request.width - 1) * growth.num_pages;
  TW_CHECK(num_branch_pages_ <= most_branch_pages());
}

// Page `index` of the sequence where a branch has it.
PageId DraftModel::Growth::page(int32_t branch, int32_t index) const {
  if (branch == 0 || index < first_page) return request.sequence->pages[static_cast<size_t>(index)];
  return PageId{
      static_cast<int32_t>(first_branch_page + (branch - 1) * num_pages + index - first_page)};
}

// At first the tokens that were not computed yet, then the guesses that are gone on from.
void DraftModel::add_level(Growth& growth, int32_t level) {
  Sequence& sequence = *growth.request.sequence;
  growth.first_row = builder_->num_seqs();
  if (level == 0) {
    builder_->begin_sequence(sequence.num_drafter_computed, sequence.pages, true);
    for (int32_t i = sequence.num_drafter_computed; i < sequence.num_tokens(); ++i) {
      add_token(sequence, i, i + 1 == sequence.num_tokens());
    }
    builder_->end_sequence();
    return;
  }
  const int32_t position = sequence.num_tokens() - 1 + level;
  for (const TreeGrowth::Leaf& leaf : growth.tree.leaves()) {
    branch_.clear();
    for (int32_t i = 0; i <= position / page_size_; ++i)
      branch_.push_back(growth.page(leaf.branch, i));
    builder_->begin_sequence(position, branch_, true);
    builder_->add_token(growth.tree.token(leaf), true, wants_states());
    if (wants_states()) {
      // Its own state, in place of the model's of the guess before.
      const float* state = model_->hidden_states().row(growth.last_first_row + leaf.parent_leaf);
      previous_.insert(previous_.end(), state, state + limits_.hidden_size);
    }
    builder_->end_sequence();
  }
}

// Of what the level's rows say; `row` is the first of them, and goes on to the next request's.
void DraftModel::grow(Growth& growth, int32_t level, Matrix<const float> logits, int64_t& row) {
  growth.last_first_row = growth.first_row;
  const size_t num_leaves = growth.tree.leaves().size();
  for (size_t leaf = 0; leaf < num_leaves; ++leaf, ++row) {
    add_guesses(growth, leaf,
                {logits.row(row), static_cast<size_t>(std::min(vocab_size_, logits.cols))});
  }
  growth.tree.descend([&](int32_t from, int32_t to) {
    const int32_t last_page = (growth.request.sequence->num_tokens() - 1 + level) / page_size_;
    for (int32_t index = growth.first_page; index <= last_page; ++index) {
      model_->copy_page(to_index(growth.page(from, index)), to_index(growth.page(to, index)));
    }
  });
}

void DraftModel::add_guesses(Growth& growth, size_t leaf, std::span<const float> logits) {
  const auto size = static_cast<int64_t>(logits.size());
  const std::span<const TokenId> ids = model_->token_ids();
  const auto token = [&](int64_t column) {
    return ids.empty() ? static_cast<TokenId>(column) : ids[static_cast<size_t>(column)];
  };
  if (growth.request.width == 1) {
    // The likeliest, however likely: how far a chain goes was decided before.
    growth.tree.add(leaf, token(kernels_.argmax(logits.data(), size)), 0.0f);
    return;
  }
  const float sum = kernels_.log_sum_exp(logits.data(), size);
  largest_.assign(static_cast<size_t>(std::min<int64_t>(growth.request.width, size)),
                  {-INFINITY, -1});
  for (int64_t column = 0; column < size; ++column) {
    const float value = logits[static_cast<size_t>(column)];
    if (!(value > largest_.back().logit)) continue;
    auto place = largest_.end() - 1;
    for (; place != largest_.begin() && value > (place - 1)->logit; --place) *place = *(place - 1);
    *place = {value, column};
  }
  for (const Column& best : largest_) {
    if (best.column >= 0) growth.tree.add(leaf, token(best.column), best.logit - sum);
  }
}

void DraftModel::end_growth(Growth& growth) {
  Sequence& sequence = *growth.request.sequence;
  growth.tree.choose(growth.request.num_drafts, sequence.drafts);
  const int32_t num_tokens = sequence.num_tokens();
  // With states guesses are computed again, from the model's; and of a tree's branches none stays.
  const bool keeps_guesses = !wants_states() && growth.request.width == 1;
  sequence.num_drafter_computed =
      num_tokens + (keeps_guesses ? std::max(0, sequence.drafts.size() - 1) : 0);
  if (wants_states()) sequence.states.drop_before(num_tokens - 1);
}

}  // namespace tw
