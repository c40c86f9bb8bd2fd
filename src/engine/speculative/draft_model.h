// Guesses from another model of the same vocabulary: its likeliest tokens, one forward pass for
// each place, of all requests together; in a tree, of all branches. A branch has pages of its own
// here, which begin as copies of those that it grows from. It is a smaller model (Leviathan et al.,
// 2023), or the verifying model's own layer or head for it, which goes by that model's hidden
// states (multi-token prediction, EAGLE-3).
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
#include "engine/speculative/tree_growth.h"
#include "kernels/sampling/logits.h"

namespace tw {

class DraftModel final : public Drafter {
 public:
  // Guesses are ids below `vocab_size`, the number of the verifying model's. Only where it
  // `draws_trees` may requests have a width above 1.
  DraftModel(std::unique_ptr<GuessingModel> model, int64_t vocab_size, bool draws_trees,
             const CpuFeatures& features);

  int64_t kv_bytes_per_token() const override;
  Status prepare(int64_t num_pages, int32_t page_size, int32_t chunked_prefill_size,
                 int32_t max_num_seqs) override;
  void adopt_caller() override { model_->adopt_caller(); }
  bool wants_states() const override { return model_->wants_states(); }
  void follow(std::span<const ScheduledSequence> step, Matrix<const float> states) override;
  void accept(Sequence& sequence, const float* state) override;
  void move_page(PageId from, PageId to) override;
  void propose(std::span<const DraftRequest> requests) override;

 private:
  // A request's guesses while they are made.
  struct Growth {
    DraftRequest request;
    TreeGrowth tree;
    int32_t first_page = 0;         // of the sequence's, that branches have of their own ...
    int32_t num_pages = 0;          // ... and so many
    int64_t first_branch_page = 0;  // of branch 1
    int32_t first_row = 0;          // of the level that is computed
    int32_t last_first_row = 0;     // of the last one that was

    PageId page(int32_t branch, int32_t index) const;
  };
  struct Column {
    float logit;
    int64_t column;
  };

  int64_t most_branch_pages() const;
  int32_t within_context(int32_t num_tokens) const;
  void compute(Sequence& sequence, int32_t end);
  void flush();
  void guess(std::span<DraftRequest> group);
  void begin_growth(const DraftRequest& request, Growth& growth);
  void add_level(Growth& growth, int32_t level);
  void grow(Growth& growth, int32_t level, Matrix<const float> logits, int64_t& row);
  void add_guesses(Growth& growth, size_t leaf, std::span<const float> logits);
  void end_growth(Growth& growth);
  void add_token(const Sequence& sequence, int32_t position, bool wants_guess);
  Matrix<const float> forward();

  const std::unique_ptr<GuessingModel> model_;
  const bool draws_trees_;
  const ModelLimits limits_;
  const int64_t vocab_size_;
  const kernels::LogitsKernels& kernels_;
  int32_t page_size_ = 0;
  int32_t max_seqs_ = 0;    // of a batch
  int32_t max_tokens_ = 0;  // of a batch
  std::optional<BatchBuilder> builder_;
  std::vector<float> previous_;  // [tokens of the batch, hidden_size] where states are wanted
  std::vector<DraftRequest> group_;
  std::vector<Growth> growths_;   // of the group, in its order
  std::vector<PageId> branch_;    // pages of the branch that is being added
  std::vector<Column> largest_;   // of a row of logits
  int64_t num_pages_ = 0;         // of the model's cache; behind them lie branches ...
  int64_t num_branch_pages_ = 0;  // ... of so many pages now
};

}  // namespace tw
