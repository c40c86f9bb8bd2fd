// The models that guess for another one: what the drafter in draft_model.h asks of them.
#pragma once

#include <memory>
#include <span>

#include "engine/request.h"
#include "models/model.h"

namespace tw {

class GuessingModel {
 public:
  virtual ~GuessingModel() = default;

  virtual ModelLimits limits() const = 0;
  virtual Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                         int32_t max_num_seqs) = 0;
  virtual void adopt_caller() {}

  // The token of each column of its logits; empty: equal numbers.
  virtual std::span<const TokenId> token_ids() const { return {}; }
  // Whether it goes by the verifying model's hidden states (Model::next_token_states): then row i
  // of `previous` [num_tokens, hidden_size] is that of the token before token i.
  virtual bool wants_states() const { return false; }
  virtual Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) = 0;
  virtual void copy_page(int64_t from, int64_t to) = 0;
  // Of batch.state_tokens: stand in for states that the model has not computed yet.
  virtual Matrix<const float> hidden_states() const = 0;
};

// A smaller model of its own.
class StandaloneGuesser final : public GuessingModel {
 public:
  explicit StandaloneGuesser(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  ModelLimits limits() const override { return model_->limits(); }
  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    return model_->prepare(num_pages, page_size, max_num_tokens, max_num_seqs);
  }
  void adopt_caller() override { model_->adopt_caller(); }
  Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) override {
    return model_->forward(batch);
  }
  void copy_page(int64_t from, int64_t to) override { model_->copy_page(from, to); }
  Matrix<const float> hidden_states() const override { return model_->hidden_states(); }

 private:
  const std::unique_ptr<Model> model_;
};

// The verifying model's own layer or head for it, which must outlive this.
class NextTokenGuesser final : public GuessingModel {
 public:
  NextTokenGuesser(NextTokenModel& model, const ModelLimits& limits)
      : model_(model), limits_(limits) {
    limits_.kv_bytes_per_token = model.kv_bytes_per_token();
  }

  ModelLimits limits() const override { return limits_; }
  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    return model_.prepare(num_pages, page_size, max_num_tokens, max_num_seqs);
  }
  std::span<const TokenId> token_ids() const override { return model_.token_ids(); }
  bool wants_states() const override { return true; }
  Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) override {
    return model_.forward(batch, previous);
  }
  void copy_page(int64_t from, int64_t to) override { model_.copy_page(from, to); }
  Matrix<const float> hidden_states() const override { return model_.hidden_states(); }

 private:
  NextTokenModel& model_;
  ModelLimits limits_;
};

}  // namespace tw
