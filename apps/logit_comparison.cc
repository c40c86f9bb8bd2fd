#include "apps/logit_comparison.h"

#include <algorithm>
#include <cmath>

namespace tw {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

}  // namespace

Prediction compare_logits(std::span<const float> logits, std::span<const float> reference,
                          int32_t next_token) {
  Prediction result;
  const double norm = log_sum_exp(logits);
  result.loss = norm - logits[static_cast<size_t>(next_token)];
  if (reference.empty()) return result;
  const double reference_norm = log_sum_exp(reference);
  double largest_difference = 0, largest_magnitude = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_norm;
    result.kl_divergence += std::exp(log_p) * (log_p - (logits[i] - norm));
    largest_difference =
        std::max(largest_difference, std::abs(static_cast<double>(logits[i]) - reference[i]));
    largest_magnitude = std::max(largest_magnitude, std::abs(static_cast<double>(reference[i])));
  }
  result.logit_error = largest_difference / largest_magnitude;
  result.same_best = std::ranges::max_element(logits) - logits.begin() ==
                     std::ranges::max_element(reference) - reference.begin();
  return result;
}

void PredictionQuality::add(const Prediction& prediction) {
  ++num_tokens;
  loss += prediction.loss;
  kl_divergence += prediction.kl_divergence;
  largest_logit_error = std::max(largest_logit_error, prediction.logit_error);
  if (prediction.same_best) ++num_same_best;
}

double PredictionQuality::perplexity() const {
  return std::exp(loss / static_cast<double>(num_tokens));
}

}  // namespace tw
