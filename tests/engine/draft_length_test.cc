// How many guesses are made: what is learned of the clock, and that guessing by it does not make
// anything slower, whatever steps cost and however often guesses are right.
#include "engine/speculative/draft_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tw {
namespace {

TEST(DraftCosts, TellsRowsFromStepsByTheirDifferences) {
  DraftCosts costs;
  EXPECT_EQ(costs.row_seconds(), 0);
  for (int i = 0; i < 200; ++i) {
    const int rows = 1 + i % 9;
    costs.observe_step(rows, 0.1 + 0.02 * rows);
  }
  EXPECT_NEAR(costs.row_seconds(), 0.02, 1e-6);
  EXPECT_NEAR(costs.step_seconds(1), 0.12, 1e-6);
  EXPECT_NEAR(costs.step_seconds(5), 0.2, 1e-6);
  // While nothing is guessed all steps are alike, and tell nothing about rows.
  for (int i = 0; i < 1000; ++i) costs.observe_step(4, 0.18);
  EXPECT_NEAR(costs.row_seconds(), 0.02, 1e-3);
}

// Requests whose guesses are right by chance, on a machine whose steps take what `step_seconds`
// says of their number of rows, give or take 5%.
struct Load {
  std::string name;
  std::function<double(int)> step_seconds;
  double guess_seconds = 0;  // for all requests together
  int num_seqs = 1;
  // The chance that a guess is right; below 0: high and low, a hundred tokens each.
  double chance = 0;
};

constexpr int kFollowsTheClock = -1;

// Tokens per second with that many guesses for each request.
double tokens_per_second(const Load& load, int guesses) {
  constexpr int kSteps = 1500;
  std::mt19937 random(7);
  std::normal_distribution<double> noise(1, 0.05);
  std::uniform_real_distribution<double> unit(0, 1);
  const auto num_seqs = static_cast<size_t>(load.num_seqs);
  const int limit = std::min(8, 32 / load.num_seqs);
  DraftCosts costs;
  std::vector<DraftLength> lengths(num_seqs);
  std::vector<int> counts(num_seqs);
  std::vector<int64_t> tokens(num_seqs);
  for (int64_t& start : tokens) start = static_cast<int64_t>(random() % 200);
  double seconds = 0;
  int64_t sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    int rows = load.num_seqs, rounds = 0, guessing = 0;
    for (size_t i = 0; i < num_seqs; ++i) {
      counts[i] = guesses == kFollowsTheClock ? lengths[i].next(costs, step, load.num_seqs, limit)
                                              : std::min(guesses, limit);
      rows += counts[i];
      rounds = std::max(rounds, counts[i]);
      guessing += counts[i] > 0 ? 1 : 0;
    }
    const double guess = load.guess_seconds * noise(random);
    const double time = load.step_seconds(rows) * noise(random);
    if (rounds > 0) costs.observe_guess(guessing, guess);
    costs.observe_step(rows, time);
    seconds += time + rounds * guess;
    for (size_t i = 0; i < num_seqs; ++i) {
      const double chance =
          load.chance >= 0 ? load.chance : (tokens[i] / 100 % 2 == 0 ? 0.05 : 0.95);
      int accepted = 0;
      while (accepted < counts[i] && unit(random) < chance) ++accepted;
      tokens[i] += accepted + 1;
      sum += accepted + 1;
      if (counts[i] > 0) lengths[i].observe(counts[i], accepted);
    }
  }
  return static_cast<double>(sum) / seconds;
}

// Distinct experts that rows choose: the bytes that a mixture reads.
double experts_of(double num_experts, double top_k, int rows) {
  return num_experts * (1 - std::pow(1 - top_k / num_experts, rows));
}

std::vector<Load> loads() {
  std::vector<Load> machines = {
      {"rows are nearly free", [](int rows) { return 1 + 0.01 * rows; }},
      {"rows cost a tenth", [](int rows) { return 1 + 0.1 * rows; }},
      {"rows cost half", [](int rows) { return 1 + 0.5 * rows; }},
      {"rows cost all", [](int rows) { return 1.0 * rows; }},
      {"rows cost all from eight on", [](int rows) { return std::max(1.0, 0.12 * rows); }},
      {"128 experts, 8 of a row",
       [](int rows) { return 0.3 + 0.7 / 8 * experts_of(128, 8, rows) + 0.01 * rows; }},
      {"32 experts, 4 of a row",
       [](int rows) { return 0.4 + 0.6 / 4 * experts_of(32, 4, rows) + 0.02 * rows; }}};
  std::vector<Load> all;
  for (Load load : machines) {
    for (const double guess_seconds : {0.0, 0.2}) {
      for (const int num_seqs : {1, 4, 16}) {
        for (const double chance : {0.0, 0.3, 0.6, 0.9, -1.0}) {
          load.guess_seconds = guess_seconds;
          load.num_seqs = num_seqs;
          load.chance = chance;
          all.push_back(load);
        }
      }
    }
  }
  return all;
}

TEST(DraftLength, IsNeverMuchSlowerThanThePlainRunAndOftenNearTheBest) {
  double sum_of_shares = 0;
  for (const Load& load : loads()) {
    const double plain = tokens_per_second(load, 0);
    double best = plain;
    for (const int guesses : {1, 2, 4, 8}) {
      best = std::max(best, tokens_per_second(load, guesses));
    }
    const double own = tokens_per_second(load, kFollowsTheClock);
    EXPECT_GT(own, 0.97 * plain) << load.name << ", " << load.num_seqs
                                 << " requests, a guess costs " << load.guess_seconds
                                 << " and is right with " << load.chance;
    sum_of_shares += own / best;
  }
  EXPECT_GT(sum_of_shares / static_cast<double>(loads().size()), 0.96);
}

DraftCosts costs_of(double row_seconds, double guess_seconds, int32_t num_seqs = 1) {
  DraftCosts costs;
  for (int i = 0; i < 100; ++i) costs.observe_step(1 + i % 5, 1 + row_seconds * (i % 5));
  costs.observe_guess(num_seqs, num_seqs * guess_seconds);
  return costs;
}

// Mean number of guesses per step when each is right with the given chance.
double mean_length(const DraftCosts& costs, double chance, int32_t num_seqs = 1) {
  std::mt19937 random(3);
  std::bernoulli_distribution right(chance);
  DraftLength length;
  int64_t sum = 0;
  constexpr int kSteps = 4000;
  for (int i = 0; i < kSteps; ++i) {
    const int32_t count = length.next(costs, i, num_seqs, 16);
    EXPECT_LE(count, 16);
    sum += count;
    int32_t accepted = 0;
    while (accepted < count && right(random)) ++accepted;
    if (count > 0) length.observe(count, accepted);
  }
  return static_cast<double>(sum) / kSteps;
}

TEST(DraftLength, FollowsWhatIsRightAndWhatItCosts) {
  EXPECT_NEAR(mean_length(costs_of(0, 0), 1), 15.5, 0.1)
      << "all right and free: as many as allowed, but in every 32nd step";
  EXPECT_LT(mean_length(costs_of(0, 0), 0), 0.05) << "never right: hardly any";
  const double cheap = mean_length(costs_of(0.01, 0.01), 0.8);
  const double dear = mean_length(costs_of(0.1, 0.2), 0.8);
  EXPECT_GT(cheap, 2);
  EXPECT_LT(dear, cheap);
  EXPECT_GT(dear, 0.3);
  // Beside others a step's fixed part is shared, and rows weigh more.
  EXPECT_LT(mean_length(costs_of(0.1, 0), 0.8, 8), mean_length(costs_of(0.1, 0), 0.8));
  // A row that costs as much as a step never pays, however right the guess is.
  EXPECT_LT(mean_length(costs_of(1, 0), 0.9), 0.05);
}

}  // namespace
}  // namespace tw
