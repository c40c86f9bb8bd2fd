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

#include "models/next_token_plan.h"
#include "nn/load_sequence.h"

namespace tw {

class NextTokenLayer final : public NextTokenPlan {
 public:
  // `prefix` is that of the layer, such as "model.layers.61.".
  NextTokenLayer(const DecoderParts& parts, LoadSequence& load, const std::string& prefix);

  void add(ResidualBlock block);

 private:
  Expected<Recorded> record(const ForwardLimits& limits) override;

  std::vector<float> embedding_norm_, state_norm_;  // [hidden_size] each
  Linear of_embedding_, of_state_;                  // the projection's halves
  std::vector<ResidualBlock> blocks_;
  std::vector<float> norm_;  // [hidden_size]
};

}  // namespace tw
