#include "engine/batch_builder.h"

namespace tw {

BatchBuilder::BatchBuilder(int32_t page_size, int32_t max_tokens, int32_t max_seqs)
    : page_size_(page_size) {
  for (auto* per_token : {&token_ids_, &positions_, &kv_slots_, &logit_tokens_, &state_tokens_}) {
    per_token->reserve(static_cast<size_t>(max_tokens));
  }
  for (auto* per_seq : {&seq_starts_, &context_lens_, &page_table_starts_, &state_slots_}) {
    per_seq->reserve(static_cast<size_t>(max_seqs) + 1);
  }
  adapters_.reserve(static_cast<size_t>(max_seqs));
  clear();
}

void BatchBuilder::clear() {
  adapters_.clear();
  kv_copies_.clear();
  has_adapters_ = false;
  for (auto* array : {&token_ids_, &positions_, &context_lens_, &kv_slots_, &page_tables_,
                      &logit_tokens_, &state_tokens_, &state_slots_}) {
    array->clear();
  }
  seq_starts_.assign(1, 0);
  page_table_starts_.assign(1, 0);
  num_generated_tokens_ = 0;
}

void BatchBuilder::begin_sequence(int32_t first, std::span<const PageId> pages, bool generated,
                                  const LoraAdapter* adapter, int32_t state_slot) {
  state_slots_.push_back(state_slot);
  adapters_.push_back(adapter);
  has_adapters_ |= adapter != nullptr;
  position_ = first;
  pages_ = pages;
  generated_ = generated;
}

void BatchBuilder::add_token(TokenId token, bool wants_logits, bool wants_state) {
  if (wants_state) state_tokens_.push_back(num_tokens());
  if (wants_logits) logit_tokens_.push_back(num_tokens());
  token_ids_.push_back(token);
  positions_.push_back(position_);
  const PageId page = pages_[static_cast<size_t>(position_ / page_size_)];
  kv_slots_.push_back(to_index(page) * page_size_ + position_ % page_size_);
  num_generated_tokens_ += generated_ ? 1 : 0;
  ++position_;
}

void BatchBuilder::copy_token(int32_t token, PageId page) {
  const int32_t offset = positions_[static_cast<size_t>(token)] % page_size_;
  kv_copies_.push_back({token, to_index(page) * page_size_ + offset});
}

void BatchBuilder::end_sequence() {
  const int32_t num_pages = (position_ + page_size_ - 1) / page_size_;
  for (PageId page : pages_.first(static_cast<size_t>(num_pages))) {
    page_tables_.push_back(to_index(page));
  }
  seq_starts_.push_back(num_tokens());
  context_lens_.push_back(position_);
  page_table_starts_.push_back(static_cast<int32_t>(page_tables_.size()));
}

Batch BatchBuilder::batch() const {
  Batch batch{
      token_ids_,   positions_,         seq_starts_,   context_lens_,         kv_slots_,
      page_tables_, page_table_starts_, logit_tokens_, num_generated_tokens_, state_tokens_};
  batch.state_slots = state_slots_;
  batch.kv_copies = kv_copies_;
  if (has_adapters_) batch.adapters = adapters_;
  return batch;
}

}  // namespace tw
