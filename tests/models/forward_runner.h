// Runs a model without the engine: whole sequences, the logits of all their tokens.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"

namespace tw::testing_support {

class ForwardRunner {
 public:
  static constexpr int32_t kPageSize = 16;

  // Room for `max_num_seqs` sequences of `max_context` tokens, computed `max_num_tokens` at a time.
  ForwardRunner(Model& model, int32_t max_context, int32_t max_num_tokens, int32_t max_num_seqs = 1)
      : model_(model), max_num_tokens_(max_num_tokens) {
    pages_per_seq_ = (max_context + kPageSize - 1) / kPageSize;
    num_pages_ = pages_per_seq_ * max_num_seqs;
    const Status prepared = model.prepare(num_pages_, kPageSize, max_num_tokens, max_num_seqs);
    EXPECT_TRUE(prepared) << (prepared ? "" : prepared.error().message);
    ready_ = static_cast<bool>(prepared);
  }

  bool is_ready() const { return ready_; }

  // Of each sequence; empty: of none.
  std::vector<const LoraAdapter*> adapters;
  // So many rows of each step count as generated, although a sequence should have one class in it.
  int32_t num_generated_tokens = 0;

  // One step: tokens [begin, end) of each sequence, as one batch. Logits of all of them in order,
  // [total, vocab_size], valid until the next step.
  Matrix<const float> step(std::span<const std::span<const int32_t>> sequences, size_t begin,
                           size_t end) {
    clear();
    for (size_t s = 0; s < sequences.size(); ++s) {
      const size_t last = std::min(end, sequences[s].size());
      if (begin >= last) continue;
      for (size_t position = begin; position < last; ++position) {
        logit_tokens_.push_back(static_cast<int32_t>(token_ids_.size()));
        token_ids_.push_back(sequences[s][position]);
        positions_.push_back(static_cast<int32_t>(position));
        const int32_t page = page_of(s, static_cast<int32_t>(position) / kPageSize);
        kv_slots_.push_back(page * kPageSize + static_cast<int32_t>(position) % kPageSize);
      }
      seq_starts_.push_back(static_cast<int32_t>(token_ids_.size()));
      context_lens_.push_back(static_cast<int32_t>(last));
      state_slots_.push_back(static_cast<int32_t>(s));
      for (int32_t p = 0; p * kPageSize < static_cast<int32_t>(last); ++p) {
        page_tables_.push_back(page_of(s, p));
      }
      page_table_starts_.push_back(static_cast<int32_t>(page_tables_.size()));
    }
    Batch batch{token_ids_, positions_,   seq_starts_,        context_lens_,
                kv_slots_,  page_tables_, page_table_starts_, logit_tokens_};
    batch.adapters = adapters;
    batch.num_generated_tokens = std::min(num_generated_tokens, batch.num_tokens());
    batch.state_slots = state_slots_;
    return model_.forward(batch);
  }

  // The logits of all tokens of one sequence, in chunks of max_num_tokens.
  std::vector<float> run(std::span<const int32_t> tokens) {
    std::vector<float> all;
    const auto chunk = static_cast<size_t>(max_num_tokens_);
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const Matrix<const float> logits = step({{tokens}}, begin, begin + chunk);
      for (int64_t r = 0; r < logits.rows; ++r) {
        all.insert(all.end(), logits.row(r), logits.row(r) + logits.cols);
      }
    }
    return all;
  }

 private:
  // A sequence's pages lie apart and backwards in the cache: nothing may rely on their order.
  int32_t page_of(size_t seq, int32_t index) const {
    return num_pages_ - 1 - (index * (num_pages_ / pages_per_seq_) + static_cast<int32_t>(seq));
  }

  void clear() {
    for (auto* array : {&token_ids_, &positions_, &context_lens_, &kv_slots_, &page_tables_,
                        &logit_tokens_, &state_slots_}) {
      array->clear();
    }
    seq_starts_ = {0};
    page_table_starts_ = {0};
  }

  Model& model_;
  int32_t max_num_tokens_;
  int32_t pages_per_seq_ = 0;
  int32_t num_pages_ = 0;
  bool ready_ = false;
  std::vector<int32_t> token_ids_, positions_, seq_starts_, context_lens_, kv_slots_, page_tables_,
      page_table_starts_, logit_tokens_, state_slots_;
};

}  // namespace tw::testing_support
