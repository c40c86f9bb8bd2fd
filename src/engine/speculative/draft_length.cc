#include "engine/speculative/draft_length.h"

#include <algorithm>

namespace tw {
namespace {

constexpr int32_t kLongest = 64;
constexpr int32_t kLongestPause = 64;
constexpr double kMemory = 0.95;     // of the costs, per step
constexpr double kForgetting = 0.1;  // of the acceptance, per guess

}  // namespace

void DraftCosts::observe_step(int32_t num_rows, double seconds) {
  const auto fade = [](double& sum, double value) { sum = kMemory * sum + value; };
  fade(weight_, 1);
  fade(rows_, num_rows);
  fade(seconds_, seconds);
  fade(rows_squared_, static_cast<double>(num_rows) * num_rows);
  fade(rows_by_seconds_, num_rows * seconds);
  // The slope of the line through the points (rows, seconds). Where all steps had about as many
  // rows there is nothing to tell it from, and the last one stands.
  const double mean_rows = rows_ / weight_, mean_seconds = seconds_ / weight_;
  const double variance = rows_squared_ / weight_ - mean_rows * mean_rows;
  if (variance < 0.01 * mean_rows) return;
  const double slope = (rows_by_seconds_ / weight_ - mean_rows * mean_seconds) / variance;
  row_seconds_ = std::clamp(slope, 0.0, mean_seconds / mean_rows);
}

void DraftCosts::observe_guess(double seconds) {
  guess_seconds_ = guess_seconds_ == 0 ? seconds : 0.9 * guess_seconds_ + 0.1 * seconds;
}

double DraftCosts::step_seconds(int32_t num_rows) const {
  if (weight_ == 0) return 0;
  return (seconds_ + row_seconds_ * (num_rows * weight_ - rows_)) / weight_;
}

int32_t DraftLength::next(const DraftCosts& costs, int32_t num_seqs, int32_t limit) {
  if (steps_left_ > 0) {
    --steps_left_;
    return 0;
  }
  // A request bears its part of what all wait for.
  constexpr double kNothing = 1e-9;  // before anything was measured
  double seconds = std::max(costs.step_seconds(num_seqs) / num_seqs, kNothing);
  const double guess = costs.row_seconds() + costs.guess_seconds() / num_seqs;
  double tokens = 1, chance = 1, best_rate = tokens / seconds;
  int32_t best = 0;
  for (int32_t length = 1; length <= std::min(length_, limit); ++length) {
    chance *= acceptance_;
    tokens += chance;
    seconds += guess;
    if (tokens / seconds <= best_rate) break;  // and longer ones are worse still
    best_rate = tokens / seconds;
    best = length;
  }
  // What doesn't pay is tried now and then: costs and texts change.
  trial_ = best == 0 && limit > 0;
  if (!trial_) return best;
  pause();
  return 1;
}

void DraftLength::pause() {
  pause_ = std::min(2 * pause_ + 1, kLongestPause);
  steps_left_ = pause_;
}

void DraftLength::observe(int32_t num_drafts, int32_t num_accepted) {
  for (int32_t i = 0; i < std::min(num_accepted + 1, num_drafts); ++i) {
    acceptance_ += kForgetting * ((i < num_accepted ? 1.0 : 0.0) - acceptance_);
  }
  if (num_accepted == 0) {
    length_ = std::max(1, length_ / 2);
    pause();
    return;
  }
  length_ = num_accepted == num_drafts ? std::min(2 * length_, kLongest) : num_accepted + 1;
  if (!trial_) pause_ = 0;
}

}  // namespace tw
