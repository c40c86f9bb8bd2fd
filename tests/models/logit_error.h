// How far computed logits are from the reference's, by the measure of the golden tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace tw::testing_support {

// Of one position: the largest difference over the vocabulary, absolute and relative to the
// largest magnitude of the reference's logits there. A logit near zero has no small relative error
// of its own: it is a sum of terms of the size of the others.
struct LogitError {
  double absolute = 0;
  double relative = 0;
};

inline LogitError logit_error(std::span<const float> computed, std::span<const float> reference,
                              double reference_max) {
  LogitError error;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double difference = std::abs(static_cast<double>(computed[i]) - reference[i]);
    // A NaN must not pass for small.
    error.absolute = std::isnan(difference) ? INFINITY : std::max(error.absolute, difference);
  }
  error.relative = error.absolute / reference_max;
  return error;
}

inline double largest_magnitude(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

inline int32_t argmax(std::span<const float> values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// Of the distributions that two rows of logits stand for, in nats.
inline double kl_divergence(std::span<const float> reference, std::span<const float> computed) {
  const auto log_sum = [](std::span<const float> logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float value : logits) sum += std::exp(value - largest);
    return largest + std::log(sum);
  };
  const double reference_sum = log_sum(reference), computed_sum = log_sum(computed);
  double divergence = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_sum;
    divergence += std::exp(log_p) * (log_p - (computed[i] - computed_sum));
  }
  return divergence;
}

// Over many positions: what docs/models.md says of a model in a format.
struct Closeness {
  double largest_error = 0;  // relative
  double total_divergence = 0;
  int num_same = 0;  // best tokens
  int num_positions = 0;

  void add(std::span<const float> computed, std::span<const float> reference) {
    const double scale = largest_magnitude(reference);
    largest_error = std::max(largest_error, logit_error(computed, reference, scale).relative);
    total_divergence += kl_divergence(reference, computed);
    num_same += argmax(computed) == argmax(reference) ? 1 : 0;
    ++num_positions;
  }
};

}  // namespace tw::testing_support
