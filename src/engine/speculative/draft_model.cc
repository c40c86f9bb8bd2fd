#include "engine/speculative/draft_model.h"

#include <algorithm>

#include "engine/scheduler.h"

namespace tw {
namespace {

// Rows of one sequence when it asks for guesses: what came since its last whole page, and guesses.
constexpr int32_t kRoomForGuesses = 65;

Matrix<const float> rows_of(Matrix<const float> matrix, int64_t first, int64_t count) {
  return {matrix.row(first), count, matrix.cols, matrix.row_stride};
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<GuessingModel> model, int64_t vocab_size,
                       const CpuFeatures& features)
    : model_(std::move(model)),
      limits_(model_->limits()),
      vocab_size_(std::min(vocab_size, limits_.vocab_size)),
      kernels_(kernels::select_logits(features)) {}

int64_t DraftModel::kv_bytes_per_token() const {
  return limits_.kv_bytes_per_token;
}

Status DraftModel::prepare(int64_t num_pages, int32_t page_size, int32_t chunked_prefill_size,
                           int32_t max_num_seqs) {
  page_size_ = page_size;
  max_seqs_ = max_num_seqs;
  max_tokens_ = std::max(chunked_prefill_size + max_num_seqs, page_size + kRoomForGuesses);
  builder_.emplace(page_size, max_tokens_, max_num_seqs);
  return model_->prepare(num_pages, page_size, max_tokens_, max_num_seqs);
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
      sequence.states.put(begin, rows_of(states, entry.first_state, entry.num_states));
    }
    const bool completes_page =
        sequence.num_computed / page_size_ > sequence.num_drafter_computed / page_size_;
    if (begin < sequence.num_prompt() || completes_page) compute(sequence, sequence.num_computed);
  }
  flush();
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
  const int32_t num_tokens = sequence.num_tokens();
  builder_->add_token(position < num_tokens
                          ? sequence.tokens[static_cast<size_t>(position)]
                          : sequence.drafts[static_cast<size_t>(position - num_tokens)],
                      wants_guess, wants_guess && wants_states());
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

// All rounds of guesses for sequences whose first rows fit into one batch. Longest first: those
// that go on are always the first ones.
void DraftModel::guess(std::span<DraftRequest> group) {
  const std::span<DraftRequest> all = group;
  std::ranges::sort(group, std::greater(), &DraftRequest::limit);
  for (int32_t round = 0; round < group.front().limit; ++round) {
    while (group.back().limit <= round) group = group.first(group.size() - 1);
    for (const DraftRequest& request : group) add_round(*request.sequence);
    const Matrix<const float> logits = forward();
    for (size_t i = 0; i < group.size(); ++i) {
      Sequence& sequence = *group[i].sequence;
      const auto row = static_cast<int64_t>(i);
      if (wants_states()) {
        // Its own state, in place of the model's of the last token.
        sequence.states.put(sequence.num_drafter_computed - 1,
                            rows_of(model_->hidden_states(), row, 1));
      }
      sequence.drafts.push_back(likeliest(logits, row));
    }
  }
  if (!wants_states()) return;
  for (const DraftRequest& request : all) {
    request.sequence->num_drafter_computed = request.sequence->num_tokens();
    request.sequence->states.drop_before(request.sequence->num_tokens() - 1);
  }
}

TokenId DraftModel::likeliest(Matrix<const float> logits, int64_t row) const {
  const auto best = kernels_.argmax(logits.row(row), std::min(vocab_size_, logits.cols));
  const std::span<const TokenId> ids = model_->token_ids();
  return ids.empty() ? static_cast<TokenId>(best) : ids[static_cast<size_t>(best)];
}

// The tokens and guesses that were not computed yet.
void DraftModel::add_round(Sequence& sequence) {
  const int32_t end = sequence.num_tokens() + static_cast<int32_t>(sequence.drafts.size());
  builder_->begin_sequence(sequence.num_drafter_computed, sequence.pages, true);
  for (int32_t i = sequence.num_drafter_computed; i < end; ++i) {
    add_token(sequence, i, i + 1 == end);
  }
  builder_->end_sequence();
  sequence.num_drafter_computed = end;
}

}  // namespace tw
