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

}  // namespace tw::testing_support
