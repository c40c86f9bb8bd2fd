#include "engine/speculative/draft_length.h"

#include <algorithm>

namespace tw {
namespace {

constexpr int32_t kLongest = 64;
constexpr int32_t kLongestTrialPeriod = 64;  // steps; a trial costs at most a 65th
constexpr int32_t kPlainPeriod = 32;         // steps, in one of which nobody guesses
// Clocks and counts err, and what seems to pay by less than a tenth cost up to 5% in
// draft_length_test.cc's loads; nor does a guess pay that is hardly ever right, however cheap a row
// seems.
constexpr double kSmallestGain = 1.1;
constexpr double kSmallestChance = 0.05;
constexpr double kMemory = 0.98;            // of the costs, per step
constexpr double kForgetting = 0.1;         // of the acceptance, per guess ...
constexpr double kForgettingByTrial = 0.5;  // ... and where the last one was long ago

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

void DraftCosts::observe_guess(int32_t num_seqs, double seconds) {
  const double weight = guessing_ == 0 ? 1 : 0.1;
  guess_seconds_ += weight * (seconds - guess_seconds_);
  guessing_ += weight * (num_seqs - guessing_);
}

double DraftCosts::step_seconds(int32_t num_rows) const {
  if (weight_ == 0) return 0;
  return (seconds_ + row_seconds_ * (num_rows * weight_ - rows_)) / weight_;
}

int32_t DraftLength::next(const DraftCosts& costs, int64_t step, int32_t num_seqs, int32_t limit) {
  trial_ = false;
  // What rows cost shows by the difference.
  if (step % kPlainPeriod == 1) return 0;
  // A request bears its part of what all wait for.
  constexpr double kNothing = 1e-9;  // before anything was measured
  double seconds = std::max(costs.step_seconds(num_seqs) / num_seqs, kNothing);
  const double guess = costs.row_seconds() + costs.guess_seconds();
  double tokens = 1, chance = 1, best_rate = kSmallestGain / seconds;
  int32_t best = 0;
  for (int32_t length = 1; length <= std::min(length_, limit); ++length) {
    chance *= acceptance_;
    if (chance < kSmallestChance) break;
    tokens += chance;
    seconds += guess;
    const double rate = tokens / seconds;
    if (best > 0 && rate <= best_rate) break;  // and longer ones are worse still
    if (rate > best_rate) {
      best_rate = rate;
      best = length;
    }
  }
  // A row is worth its time while it gives tokens as fast as the step does.
  least_chance_ = best_rate * costs.row_seconds();
  if (best > 0 || limit <= 0) {
    if (best > 0) trial_period_ = 1;
    return best;
  }
  // What doesn't pay is tried now and then: costs and texts change. All requests try in the same
  // steps, so that they share what guessing costs.
  if (step % trial_period_ != trial_period_ / 2) return 0;
  trial_period_ = std::min(2 * trial_period_, kLongestTrialPeriod);
  trial_ = true;
  least_chance_ = 0;
  return 1;
}

void DraftLength::observe(int32_t num_drafts, int32_t num_accepted) {
  const double weight = trial_ ? kForgettingByTrial : kForgetting;
  for (int32_t i = 0; i < std::min(num_accepted + 1, num_drafts); ++i) {
    acceptance_ += weight * ((i < num_accepted ? 1.0 : 0.0) - acceptance_);
  }
  if (num_accepted == num_drafts) length_ = std::min(2 * length_, kLongest);
}

}  // namespace tw
