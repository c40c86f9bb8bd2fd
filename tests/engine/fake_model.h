// A model without arithmetic: its logits are a hash of the whole context, read back through the
// pages it is given. A page shared wrongly, freed early or written twice changes what it says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/check.h"
#include "models/model.h"

namespace tw::testing_support {

inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}

class FakeModel final : public Model {
 public:
  static constexpr int64_t kVocabSize = 97;

  explicit FakeModel(int64_t context_length = 512) {
    limits_.vocab_size = kVocabSize;
    limits_.max_position_embeddings = context_length;
    limits_.kv_bytes_per_token = 8;
    limits_.hidden_size = 2;
  }

  // What follows a context, computed without pages: the oracle.
  static int32_t next_token(const std::vector<int32_t>& context) {
    return static_cast<int32_t>(hash_of(context) % kVocabSize);
  }
  // The logits of what follows, likewise.
  static std::vector<float> logits_after(const std::vector<int32_t>& context) {
    const uint64_t hash = hash_of(context);
    std::vector<float> row(kVocabSize);
    for (int64_t i = 0; i < kVocabSize; ++i) row[static_cast<size_t>(i)] = logit(hash, i);
    row[hash % kVocabSize] = kLikeliest;
    return row;
  }

  const ModelLimits& limits() const override { return limits_; }
  void set_state_bytes(int64_t bytes) { limits_.state_bytes_per_sequence = bytes; }

  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    page_size_ = page_size;
    max_num_tokens_ = max_num_tokens;
    slots_.assign(static_cast<size_t>(num_pages * page_size), {-1, -1});
    logits_.resize(static_cast<size_t>(max_num_tokens * kVocabSize));
    return {};
  }

  Matrix<const float> forward(const Batch& batch) override {
    ++num_steps;
    TW_CHECK(batch.num_tokens() <= max_num_tokens_);
    for (size_t i = 0; i < batch.token_ids.size(); ++i) {
      slots_[static_cast<size_t>(batch.kv_slots[i])] = {batch.token_ids[i], batch.positions[i]};
    }
    for (const KvCopy& copy : batch.kv_copies) {
      const auto token = static_cast<size_t>(copy.token);
      slots_[static_cast<size_t>(copy.slot)] = {batch.token_ids[token], batch.positions[token]};
    }
    for (size_t row = 0; row < batch.logit_tokens.size(); ++row) {
      fill_row(batch, batch.logit_tokens[row], logits_.data() + row * kVocabSize);
    }
    states_.clear();
    for (const int32_t token : batch.state_tokens) {
      states_.push_back(give_nan
                            ? __builtin_nanf("")
                            : static_cast<float>(next_after(batch, token, position(batch, token))));
      states_.push_back(static_cast<float>(position(batch, token)));
    }
    if (trace_ != nullptr) trace_->record(0, {.name = "fake"});
    return {logits_.data(), batch.num_logits(), kVocabSize, kVocabSize};
  }

  void copy_page(int64_t from, int64_t to) override {
    std::copy_n(slots_.begin() + from * page_size_, page_size_, slots_.begin() + to * page_size_);
  }

  // [num_states, 2]: next_token() of the context, and its last position.
  Matrix<const float> hidden_states() const override {
    return {states_.data(), std::ssize(states_) / 2, 2, 2};
  }

  // next_token() of a token's sequence up to `last`, as the pages have it.
  int32_t next_after(const Batch& batch, int32_t token_index, int32_t last) const {
    return static_cast<int32_t>(context_hash(batch, token_index, last) % kVocabSize);
  }

  NextTokenModel* next_token_model() override { return next_token_layer.get(); }
  void set_trace(StepTrace* trace, int) override { trace_ = trace; }

  std::unique_ptr<NextTokenModel> next_token_layer;
  int64_t num_steps = 0;
  bool give_nan = false;
  int32_t cycle = 0;  // if set, the likeliest token is the last one + 1, modulo this
  // If set, it says something else than next_token() after every so many positions.
  int32_t errs_every = 0;
  int32_t hesitates_every = 0;  // likewise, next_token() comes second
  int64_t num_poisoned = 0;     // rows whose context held a slot of something else

 private:
  struct Slot {
    int32_t token;
    int32_t position;
  };

  static constexpr float kLikeliest = 5.0f;  // beside others in [0, 1)

  static float logit(uint64_t hash, int64_t token) {
    return static_cast<float>(mix(hash + static_cast<uint64_t>(token)) % 1000) * 1e-3f;
  }

  static uint64_t hash_of(const std::vector<int32_t>& context) {
    uint64_t hash = 1;
    for (size_t i = 0; i < context.size(); ++i) {
      hash = add(hash, static_cast<int32_t>(i), context[i]);
    }
    return hash;
  }

  static uint64_t add(uint64_t hash, int32_t position, int32_t token) {
    return mix(hash + static_cast<uint64_t>(position) * 1000003u + static_cast<uint64_t>(token));
  }

  static int32_t position(const Batch& batch, int32_t token_index) {
    return batch.positions[static_cast<size_t>(token_index)];
  }

  // Of the positions up to `last`, read through the pages of a token's sequence.
  uint64_t context_hash(const Batch& batch, int32_t token_index, int32_t last) const {
    size_t seq = 0;
    while (batch.seq_starts[seq + 1] <= token_index) ++seq;
    const int32_t* pages = batch.page_tables.data() + batch.page_table_starts[seq];
    uint64_t hash = 1;
    for (int32_t i = 0; i <= last; ++i) {
      const Slot& slot =
          slots_[static_cast<size_t>(pages[i / page_size_] * page_size_ + i % page_size_)];
      // A slot that holds another position poisons everything after it.
      hash = slot.position == i ? add(hash, i, slot.token) : 0xbad;
    }
    return hash;
  }

  void fill_row(const Batch& batch, int32_t token_index, float* row) {
    uint64_t hash = context_hash(batch, token_index, position(batch, token_index));
    num_poisoned += hash == 0xbad ? 1 : 0;
    if (errs_every > 0 && position(batch, token_index) % errs_every == 0) hash += 1;
    for (int64_t i = 0; i < kVocabSize; ++i) {
      row[i] = give_nan ? __builtin_nanf("") : logit(hash, i);
    }
    if (hesitates_every > 0 && position(batch, token_index) % hesitates_every == 0) {
      row[hash % kVocabSize] = kLikeliest - 1;
      row[(hash + 1) % kVocabSize] = kLikeliest;
      return;
    }
    const int32_t last = batch.token_ids[static_cast<size_t>(token_index)];
    row[cycle > 0 && hash != 0xbad ? (last + 1) % cycle : static_cast<int64_t>(hash % kVocabSize)] =
        kLikeliest;
  }

  ModelLimits limits_;
  int32_t page_size_ = 0;
  int32_t max_num_tokens_ = 0;
  std::vector<Slot> slots_;
  std::vector<float> logits_;
  std::vector<float> states_;
  StepTrace* trace_ = nullptr;
};

}  // namespace tw::testing_support
