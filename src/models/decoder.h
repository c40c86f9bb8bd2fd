// The decoder that all families are variants of: embedding, a residual stream that blocks read and
// add to, a final norm, and the output matrix.
//
//   hidden = embedding_scale * embed_tokens[token]
//   for each block:  hidden += norm_after(block(norm_before(hidden)))
//   logits = soft_cap(lm_head(norm(hidden)))
//
// Each norm around a block may be absent: before it alone is pre-norm (Llama), after it alone is
// OLMo 2's order, both is Gemma's and GLM's. A family's file says which blocks there are and how
// their tensors are called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "models/decoder_parts.h"
#include "models/model.h"
#include "nn/attention_block.h"
#include "nn/block.h"
#include "nn/gated_delta_block.h"
#include "nn/gated_ffn.h"
#include "nn/load_sequence.h"
#include "nn/mla_block.h"
#include "nn/moe_block.h"
#include "weights/model_config.h"

namespace tw {

// The tensors of the norms around a block, without ".weight"; empty for none.
struct BlockNorms {
  std::string before;
  std::string after;
};

// Loads a decoder block by block, in the order in which they are computed. The first error is
// kept; what follows it does nothing.
class DecoderLoader {
 public:
  DecoderLoader(const WeightLoader& loader, const ModelConfig& config, DecoderOptions options = {});
  ~DecoderLoader();

  // The blocks of layer `index`. Names stand behind "model.layers.<index>.".
  void attention(int64_t index, const BlockNorms& norms, const AttentionConfig& config,
                 const std::string& name = "self_attn");
  void gated_ffn(int64_t index, const BlockNorms& norms, const GatedFfnConfig& config,
                 const std::string& name = "mlp");
  void gated_delta(int64_t index, const BlockNorms& norms, const GatedDeltaConfig& config,
                   const std::string& name = "linear_attn");
  void mla(int64_t index, const BlockNorms& norms, const MlaConfig& config,
           const std::string& name = "self_attn");
  void moe(int64_t index, const BlockNorms& norms, const MoeConfig& config,
           const std::string& name = "mlp");
  // Any other block, loaded by the family.
  void add(int64_t index, const BlockNorms& norms, Expected<std::unique_ptr<Block>> block);

  // Whether the layer that guesses a token further is wanted (WeightLoader::next_token_layer). If
  // so, it is layer `index`: what is added from then on are its blocks.
  bool wants_next_token_layer() const { return loader_.next_token_layer; }
  void begin_next_token_layer(int64_t index);

  // "model.layers.<index>.", or what the checkpoint has before "layers".
  std::string layer_prefix(int64_t index) const;

  Expected<std::unique_ptr<Model>> finish();

 private:
  void check_tied(const ModelConfig& config);

  const WeightLoader& loader_;
  LoadSequence load_;
  std::string prefix_;  // of all tensors but lm_head's
  std::unique_ptr<class Decoder> decoder_;
};

}  // namespace tw
