// Guesses from another model of the same vocabulary: its likeliest tokens, one forward pass for
// each place, of all requests together. It is a smaller model (Leviathan et al., 2023), or the
// verifying model's own layer or head for it, which goes by that model's hidden states (multi-token
// prediction, EAGLE-3).
//
// It computes prompts chunk by chunk beside the model, and generated tokens when it is asked for
// guesses or, so that whole pages can be shared, when a page is complete. What a smaller model
// guessed rightly is in its cache already; with hidden states it is computed again from the true
// ones. The state before a prefix from the cache is not known any more, and taken as zeros.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/cpu.h"
#include "engine/batch_builder.h"
#include "engine/speculative/drafter.h"
#include "engine/speculative/guessing_model.h"
#include "kernels/sampling/logits.h"

namespace tw {

class DraftModel final : public Drafter {
 public:
  // Guesses are ids below `vocab_size`, the number of the verifying model's.
  DraftModel(std::unique_ptr<GuessingModel> model, int64_t vocab_size, const CpuFeatures& features);

  int64_t kv_bytes_per_token() const override;
  Status prepare(int64_t num_pages, int32_t page_size, int32_t chunked_prefill_size,
                 int32_t max_num_seqs) override;
  void adopt_caller() override { model_->adopt_caller(); }
  bool wants_states() const override { return model_->wants_states(); }
  void follow(std::span<const ScheduledSequence> step, Matrix<const float> states) override;
  void propose(std::span<const DraftRequest> requests) override;

 private:
  int32_t within_context(int32_t num_tokens) const;
  void compute(Sequence& sequence, int32_t end);
  void flush();
  void guess(std::span<DraftRequest> group);
  TokenId likeliest(Matrix<const float> logits, int64_t row) const;
  void add_round(Sequence& sequence);
  void add_token(const Sequence& sequence, int32_t position, bool wants_guess);
  Matrix<const float> forward();

  const std::unique_ptr<GuessingModel> model_;
  const ModelLimits limits_;
  const int64_t vocab_size_;
  const kernels::LogitsKernels& kernels_;
  int32_t page_size_ = 0;
  int32_t max_seqs_ = 0;    // of a batch
  int32_t max_tokens_ = 0;  // of a batch
  std::optional<BatchBuilder> builder_;
  std::vector<float> previous_;  // [tokens of the batch, hidden_size] where states are wanted
  std::vector<DraftRequest> group_;
};

}  // namespace tw
