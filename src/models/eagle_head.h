// EAGLE-3's head, which was trained to guess what a model says from hidden states within it: low,
// middle and high ones. Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language
// Models via Training-Time Test" (2025).
//
//   state    = fc [hidden states of the token before, at three layers of the model]
//   hidden   = state + attention([norm(embedding of the token), norm(state)])
//   hidden  += mlp(norm(hidden)); logits = lm_head(norm(hidden))
//
// `hidden` stands in for the state to guess further. The embedding is the model's. Of the
// vocabulary the head may have a part, its own numbers for the likeliest tokens.
//
// Checkpoints (LlamaForCausalLMEagle3, as SGLang reads them) have fc, midlayer.{input_layernorm,
// hidden_norm, self_attn, post_attention_layernorm, mlp}, norm, lm_head (else the model's) and d2t:
// the token of each of the head's numbers, less that number.
#pragma once

#include <memory>
#include <vector>

#include "models/next_token_plan.h"
#include "nn/load_sequence.h"
#include "weights/model_config.h"

namespace tw {

class EagleHead final : public NextTokenPlan {
 public:
  // loader.eagle_head, for the model of these parts. Fails naming what does not fit the model.
  static Expected<std::unique_ptr<EagleHead>> load(const WeightLoader& loader,
                                                   const DecoderParts& parts);

  // The model's layers whose input the head sees, ascending.
  std::span<const int64_t> layers() const { return layers_; }
  // Records, in the model's plan, what the head makes of the states at its layers.
  ValueId record_states(DecoderRecorder& recorder, std::span<const ValueId> states) const;

  std::span<const int32_t> token_ids() const override { return token_ids_; }

 private:
  EagleHead(const DecoderParts& parts, ModelConfig config)
      : NextTokenPlan(parts), config_(std::move(config)) {}

  Status read_config();
  Status load_weights(const WeightLoader& loader);
  Status load_token_ids(const Checkpoint& checkpoint);
  Expected<Recorded> record(const ForwardLimits& limits) override;

  const ModelConfig config_;
  int64_t vocab_size_ = 0;  // the head's
  std::vector<int64_t> layers_;
  std::vector<Linear> projections_;    // fc's columns of each layer
  std::vector<float> embedding_norm_;  // [hidden_size], as all norms
  std::vector<float> state_norm_;
  std::unique_ptr<Block> attention_;
  std::vector<float> ffn_norm_;
  std::unique_ptr<Block> ffn_;
  std::vector<float> norm_;
  Range vocabulary_;               // of this rank
  std::optional<Linear> lm_head_;  // none: the model's
  std::vector<int32_t> token_ids_;
};

}  // namespace tw
