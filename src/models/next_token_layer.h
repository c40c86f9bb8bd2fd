// The layer that guesses a token further from a model's final hidden state (multi-token prediction,
// "nextn"). DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024), section 2.2:
//
//   hidden = projection [norm(embedding of the token), norm(state of the token before)]
//   hidden += blocks; logits = lm_head(norm(hidden))
//
// Embedding and output matrix are the model's. In checkpoints it is the layer behind the last one,
// with tensors enorm, hnorm, eh_proj and shared_head.norm beside those of the blocks.
#pragma once

#include <vector>

#include "models/decoder_parts.h"
#include "models/model.h"
#include "nn/load_sequence.h"

namespace tw {

class NextTokenLayer final : public NextTokenModel {
 public:
  // `prefix` is that of the layer, such as "model.layers.61.".
  NextTokenLayer(const DecoderParts& parts, LoadSequence& load, const std::string& prefix);

  void add(ResidualBlock block);

  int64_t kv_bytes_per_token() const override { return kv_bytes_per_token_; }
  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override;
  Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) override;
  Matrix<const float> hidden_states() const override;

 private:
  Expected<Plan> record(const ForwardLimits& limits);

  const DecoderParts& parts_;
  std::vector<float> embedding_norm_, state_norm_;  // [hidden_size] each
  Linear of_embedding_, of_state_;                  // the projection's halves
  std::vector<ResidualBlock> blocks_;
  std::vector<float> norm_;  // [hidden_size]
  int64_t kv_bytes_per_token_ = 0;

  Plan plan_;
  ValueId previous_;
  DecoderRecorder::Outputs outputs_;
  int64_t num_states_ = 0;  // of the last batch
};

}  // namespace tw
