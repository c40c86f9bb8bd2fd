// What decoders are recorded of: the embedding, blocks around a residual stream, and the way from
// it to logits. Each part knows of the ranks of tensor parallelism.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/cpu.h"
#include "core/thread_team.h"
#include "nn/block.h"
#include "nn/forward_recorder.h"
#include "nn/linear.h"
#include "parallel/communicator.h"
#include "weights/model_config.h"

namespace tw {

// In which families differ around the layers.
struct DecoderOptions {
  float embedding_scale = 1.0f;
  float logit_soft_cap = 0.0f;      // 0: none
  float norm_weight_offset = 0.0f;  // added to the weights of all norms: 1 for Gemma
};

// hidden += norm_after(block(norm_before(hidden)))
struct ResidualBlock {
  std::vector<float> norm_before;  // [hidden_size] or empty: no norm
  std::unique_ptr<Block> block;
  std::vector<float> norm_after;  // [hidden_size] or empty: no norm
};

// From a normed state to logits.
struct OutputMatrix {
  const Linear& weights;   // [this rank's vocabulary, hidden_size]
  Range vocabulary;        // of this rank
  int64_t vocab_size = 0;  // of all
  float soft_cap = 0.0f;   // 0: none
};

// What all plans of a model share.
struct DecoderParts {
  ModelConfig config;
  DecoderOptions options;
  ThreadTeam& team;
  CpuFeatures features;
  std::optional<Communicator> communicator;  // of several ranks
  Range vocabulary;                          // of this rank

  Linear embed_tokens = {};            // [this rank's vocabulary, hidden_size]
  std::optional<Linear> lm_head = {};  // absent when tied to embed_tokens

  OutputMatrix output_matrix() const {
    return {lm_head ? *lm_head : embed_tokens, vocabulary, config.vocab_size,
            options.logit_soft_cap};
  }
};

// Records one plan. The parts must outlive it.
class DecoderRecorder {
 public:
  DecoderRecorder(const DecoderParts& parts, const ForwardLimits& limits)
      : DecoderRecorder(parts, limits, parts.config.rms_norm_eps) {}
  // For a plan whose norms have an epsilon of their own.
  DecoderRecorder(const DecoderParts& parts, const ForwardLimits& limits, float norm_eps);

  ForwardRecorder& forward() { return forward_; }
  PlanRecorder& plan() { return forward_.plan(); }

  // output = the batch's tokens' embeddings, [tokens, hidden_size].
  void embedding(ValueId output);
  void norm(ValueId input, std::span<const float> weight, ValueId output);
  // Records the block as the ranks divide it: output = its output, or output += it.
  Status block(Block& block, ValueId input, ValueId output, kernels::Epilogue epilogue);
  Status blocks(std::span<const ResidualBlock> blocks, ValueId hidden);

  struct Outputs {
    ValueId states;  // [states, hidden_size] after the norm
    ValueId logits;  // [logits, vocab_size]; with several ranks, of the first one
  };
  Outputs outputs(ValueId hidden, std::span<const float> norm_weight);
  // The two apart: rows of the tokens whose states are wanted, as they are, and logits. Rows first:
  // they need the same barrier.
  ValueId wanted_states(ValueId hidden);
  ValueId logits(ValueId hidden, std::span<const float> norm_weight, const OutputMatrix& matrix);

 private:
  template <typename Record>
  Status summed(ValueId output, kernels::Epilogue epilogue, BlockShare share, const Record& record);

  const DecoderParts& parts_;
  ForwardRecorder forward_;
  float norm_eps_;
  int64_t num_sums_ = 0;  // recorded so far
};

}  // namespace tw
