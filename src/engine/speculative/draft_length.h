// How many guesses pay: of a request, by how often they were right, and of a step, by what guesses
// and rows cost on this machine with this model, by the clock.
//
// A guess costs a row of the verifying step, which is nearly free while reading weights takes all
// the time and dear where rows compute or touch more experts; and, from a model, its own forward
// pass. The expected gain of the k-th guess is the chance that all k are right. Leviathan et al.,
// "Fast Inference from Transformers via Speculative Decoding" (2023), section 3.3.
#pragma once

#include <cstdint>

namespace tw {

// What was measured of the last steps, newer ones weighing more. Seconds.
class DraftCosts {
 public:
  // A step that computed `num_rows` tokens, none of a prompt.
  void observe_step(int32_t num_rows, double seconds);
  // One guess for each of these sequences, made together.
  void observe_guess(int32_t num_seqs, double seconds);

  double row_seconds() const { return row_seconds_; }  // what one more row adds to a step
  double step_seconds(int32_t num_rows) const;
  // Of a sequence: while few guess it is dearer.
  double guess_seconds() const { return guessing_ > 0 ? guess_seconds_ / guessing_ : 0; }

 private:
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_squared_ = 0, rows_by_seconds_ = 0;
  double row_seconds_ = 0, guess_seconds_ = 0, guessing_ = 0;
};

// How many tokens of one request to draft.
class DraftLength {
 public:
  // Of the next step, which has `num_seqs` decoding sequences, at most `limit`. `step` counts steps
  // of all requests.
  int32_t next(const DraftCosts& costs, int64_t step, int32_t num_seqs, int32_t limit);
  // Beside the last next(): how likely a guess must be to be worth a row of the step.
  double least_chance() const { return least_chance_; }
  // Whether it was a guess that does not seem to pay.
  bool is_trial() const { return trial_; }
  void observe(int32_t num_drafts, int32_t num_accepted);

 private:
  int32_t length_ = 2;       // at most; doubles while all are right
  double acceptance_ = 0.5;  // the chance that a guess is right where those before it are
  double least_chance_ = 0;
  int32_t trial_period_ = 1;  // steps, a power of two
  bool trial_ = false;        // the guess was made although it did not seem to pay
};

}  // namespace tw
