// What models that guess a token further have in common: a plan of their own whose input is, beside
// the batch, a state for each token.
#pragma once

#include <vector>

#include "models/decoder_parts.h"
#include "models/model.h"

namespace tw {

class NextTokenPlan : public NextTokenModel {
 public:
  int64_t kv_bytes_per_token() const final { return kv_bytes_per_token_; }
  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) final;
  Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) final;
  void copy_page(int64_t from, int64_t to) final;
  Matrix<const float> hidden_states() const final;

 protected:
  // The parts must outlive it.
  explicit NextTokenPlan(const DecoderParts& parts) : parts_(parts) {}

  // For each block that has one; they must outlive it.
  void add_cache_of(Block& block) {
    kv_bytes_per_token_ += block.cache_bytes_per_token();
    blocks_.push_back(&block);
  }

  struct Recorded {
    Plan plan;
    ValueId previous;  // [tokens, hidden_size], which forward() fills
    DecoderRecorder::Outputs outputs;
  };
  virtual Expected<Recorded> record(const ForwardLimits& limits) = 0;

  const DecoderParts& parts_;

 private:
  int64_t kv_bytes_per_token_ = 0;
  std::vector<Block*> blocks_;
  Recorded recorded_;
  int64_t num_states_ = 0;  // of the last batch
};

}  // namespace tw
