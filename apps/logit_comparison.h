// How well a model predicts a text, and how far its predictions are from another model's.
#pragma once

#include <cstdint>
#include <span>

namespace tw {

// What the logits behind one token say of the next.
struct Prediction {
  double loss = 0;           // -log p(next token), in nats
  double kl_divergence = 0;  // of the reference's distribution from this one, in nats
  double logit_error = 0;    // largest difference, relative to the reference's largest magnitude
  bool same_best = true;     // the likeliest token is the reference's
};

// `reference`: logits of the same vocabulary, or empty: then only the loss is set.
Prediction compare_logits(std::span<const float> logits, std::span<const float> reference,
                          int32_t next_token);

// Sums over the tokens of a text.
struct PredictionQuality {
  int64_t num_tokens = 0;
  double loss = 0, kl_divergence = 0, largest_logit_error = 0;
  int64_t num_same_best = 0;

  void add(const Prediction& prediction);
  double perplexity() const;
  double mean_kl_divergence() const { return kl_divergence / static_cast<double>(num_tokens); }
  double agreement() const {
    return static_cast<double>(num_same_best) / static_cast<double>(num_tokens);
  }
};

}  // namespace tw
