#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "engine/fake_constraint.h"

namespace tw {
namespace {

using testing_support::FakeConstraint;

std::vector<float> random_logits(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (float logit : logits) p.push_back(std::exp((logit - largest) / temperature));
  for (double value : p) sum += value;
  for (double& value : p) value /= sum;
  return p;
}

class SamplerTest : public ::testing::Test {
 protected:
  // How often each token comes in `draws` draws at successive output positions.
  std::map<TokenId, int> draw(const std::vector<float>& logits, const SamplingParams& params,
                              int draws) {
    Sampler sampler(*usable_cpu_features(), static_cast<int64_t>(logits.size()));
    Request request;
    request.sampling = params;
    SamplerState state = Sampler::start(request, 42);
    std::map<TokenId, int> counts;
    for (int i = 0; i < draws; ++i) {
      const auto event = sampler.sample(logits, request, state, i, {});
      EXPECT_TRUE(event);
      if (event) ++counts[event->token];
    }
    return counts;
  }

  // Chi-square of counts against probabilities; tokens expected fewer than 5 times are pooled.
  static void expect_distribution(const std::map<TokenId, int>& counts,
                                  const std::vector<double>& p, int draws) {
    double statistic = 0, pooled_expected = 0, pooled_seen = 0;
    int cells = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const auto found = counts.find(static_cast<TokenId>(i));
      const double seen = found == counts.end() ? 0 : found->second;
      const double expected = p[i] * draws;
      if (p[i] == 0) {
        EXPECT_EQ(seen, 0) << "token " << i << " must not come";
        continue;
      }
      if (expected < 5) {
        pooled_expected += expected;
        pooled_seen += seen;
        continue;
      }
      statistic += (seen - expected) * (seen - expected) / expected;
      ++cells;
    }
    if (pooled_expected >= 5) {
      statistic +=
          (pooled_seen - pooled_expected) * (pooled_seen - pooled_expected) / pooled_expected;
      ++cells;
    }
    // Mean cells - 1, standard deviation sqrt(2 (cells - 1)): five of them never happen by chance,
    // and the seed is fixed.
    const double freedom = cells - 1;
    EXPECT_LT(statistic, freedom + 5 * std::sqrt(2 * freedom) + 5);
  }
};

TEST_F(SamplerTest, TemperatureZeroTakesTheLargestAndTheLowestOfEqualOnes) {
  EXPECT_EQ(draw({1, 3, 2, 3}, {.temperature = 0}, 5), (std::map<TokenId, int>{{1, 5}}));
}

TEST_F(SamplerTest, FollowsTheSoftmaxAtItsTemperature) {
  const auto logits = random_logits(50, 1);
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    expect_distribution(draw(logits, {.temperature = temperature}, 20000),
                        softmax(logits, temperature), 20000);
  }
}

TEST_F(SamplerTest, TopKKeepsTheLikeliest) {
  const auto logits = random_logits(60, 2);
  auto p = softmax(logits, 1.0);
  auto sorted = p;
  std::sort(sorted.rbegin(), sorted.rend());
  double sum = 0;
  for (double& value : p) {
    if (value < sorted[6]) value = 0;
    sum += value;
  }
  for (double& value : p) value /= sum;
  expect_distribution(draw(logits, {.top_k = 7}, 20000), p, 20000);
}

TEST_F(SamplerTest, TopPKeepsTheSmallestSetThatReachesIt) {
  // 0.5, 0.25, 0.125, 0.125
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.125f),
                                     std::log(0.25f)};
  expect_distribution(draw(logits, {.top_p = 0.7f}, 20000), {0, 2.0 / 3, 0, 1.0 / 3}, 20000);
  // Of a large vocabulary, more than the first batch of candidates.
  std::vector<float> flat(5000, 0.0f);
  const auto counts = draw(flat, {.top_p = 0.5f}, 6000);
  EXPECT_GT(counts.size(), 2100u);
  EXPECT_LE(counts.size(), 2501u);
  EXPECT_LE(counts.rbegin()->first, 2500);
}

TEST_F(SamplerTest, TopPIsAShareOfWhatTopKLeft) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  // Of the two, 4/7 and 3/7: 0.5 is reached by the first.
  EXPECT_EQ(draw(logits, {.top_p = 0.5f, .top_k = 2}, 100).size(), 1u);
  EXPECT_EQ(draw(logits, {.top_p = 0.6f, .top_k = 2}, 1000).size(), 2u);
}

TEST_F(SamplerTest, MinPDropsWhatIsFarBelowTheBest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  expect_distribution(draw(logits, {.min_p = 0.5f}, 20000), {5.0 / 8, 3.0 / 8, 0, 0}, 20000);
}

TEST_F(SamplerTest, ASeedRepeatsAndAnotherDiffers) {
  const auto logits = random_logits(1000, 3);
  SamplingParams params;
  params.seed = 7;
  const auto first = draw(logits, params, 200);
  EXPECT_EQ(draw(logits, params, 200), first);
  params.seed = 8;
  EXPECT_NE(draw(logits, params, 200), first);
}

TEST_F(SamplerTest, PenaltiesCountWhatCameBefore) {
  const std::vector<float> logits = {2.0f, 1.9f, 1.8f, -5.0f};
  // Each presence takes more than the distance to the next: all three take turns.
  const auto counts = draw(logits, {.temperature = 0, .frequency_penalty = 0.5f}, 30);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts.at(0), 10, 1);
  const auto once = draw(logits, {.temperature = 0, .presence_penalty = 0.15f}, 4);
  EXPECT_EQ(once.size(), 2u);  // 0, then 1 (1.9 > 1.85), then 0 again (1.85 > 1.8 > 1.75)
}

TEST_F(SamplerTest, RepetitionPenaltyAlsoCountsThePrompt) {
  Sampler sampler(*usable_cpu_features(), 3);
  Request request;
  request.prompt = {0};
  request.sampling.temperature = 0;
  request.sampling.repetition_penalty = 1.5f;
  SamplerState state = Sampler::start(request, 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{1.4f, 1.0f, -2.0f}, request, state, 0, {})->token, 1);
}

TEST_F(SamplerTest, BiasAndForbiddenTokens) {
  Sampler sampler(*usable_cpu_features(), 3);
  Request request;
  request.sampling.temperature = 0;
  request.sampling.logit_bias = {{2, 10.0f}};
  SamplerState state = Sampler::start(request, 0);
  const std::vector<float> logits = {3, 2, 1};
  EXPECT_EQ(sampler.sample(logits, request, state, 0, {})->token, 2);
  const std::vector<TokenId> forbidden = {2, 0};
  EXPECT_EQ(sampler.sample(logits, request, state, 0, forbidden)->token, 1);
}

TEST_F(SamplerTest, LogprobsAreTheModelsOwn) {
  Sampler sampler(*usable_cpu_features(), 4);
  Request request;
  request.return_logprob = true;
  request.num_top_logprobs = 2;
  request.sampling.temperature = 0;
  request.sampling.logit_bias = {{0, 100.0f}};
  SamplerState state = Sampler::start(request, 0);
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f),
                                     std::log(0.4f)};
  const auto event = sampler.sample(logits, request, state, 0, {});
  ASSERT_TRUE(event);
  EXPECT_EQ(event->token, 0);
  EXPECT_NEAR(event->logprob, std::log(0.1f), 1e-5);
  ASSERT_EQ(event->top_logprobs.size(), 2u);
  EXPECT_EQ(event->top_logprobs[0].token, 3);
  EXPECT_NEAR(event->top_logprobs[1].logprob, std::log(0.3f), 1e-5);
}

TEST_F(SamplerTest, NaNIsAnErrorNotAToken) {
  Sampler sampler(*usable_cpu_features(), 3);
  Request request;
  SamplerState state = Sampler::start(request, 0);
  const auto event = sampler.sample(std::vector<float>{1, std::nanf(""), 0}, request, state, 0, {});
  ASSERT_FALSE(event);
  EXPECT_NE(event.error().message.find("NaN"), std::string::npos);
}

TEST(SamplingParams, ValidationNamesFieldAndRange) {
  const auto message = [](const SamplingParams& params) {
    const Status status = params.validate(100);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.temperature = -1}).rfind("temperature is -1", 0), 0u);
  EXPECT_EQ(message({.temperature = std::nanf("")}).rfind("temperature", 0), 0u);
  EXPECT_EQ(message({.top_p = 0}).rfind("top_p is 0", 0), 0u);
  EXPECT_EQ(message({.top_p = 1.5f}).rfind("top_p", 0), 0u);
  EXPECT_EQ(message({.top_k = 0}).rfind("top_k is 0", 0), 0u);
  EXPECT_EQ(message({.min_p = -0.1f}).rfind("min_p", 0), 0u);
  EXPECT_EQ(message({.repetition_penalty = 0}).rfind("repetition_penalty", 0), 0u);
  EXPECT_EQ(message({.frequency_penalty = 3}).rfind("frequency_penalty", 0), 0u);
  EXPECT_EQ(message({.presence_penalty = -3}).rfind("presence_penalty", 0), 0u);
  EXPECT_EQ(message({.max_new_tokens = -1}).rfind("max_new_tokens", 0), 0u);
  EXPECT_EQ(message({.max_new_tokens = 1, .min_new_tokens = 2}).rfind("min_new_tokens", 0), 0u);
  EXPECT_EQ(message({.stop_token_ids = {100}}).rfind("stop_token_ids", 0), 0u);
  EXPECT_EQ(message({.logit_bias = {{-1, 0.0f}}}).rfind("logit_bias", 0), 0u);
  EXPECT_EQ(message({.logit_bias = {{1, 101.0f}}}).rfind("logit_bias", 0), 0u);
}

TEST_F(SamplerTest, AConstraintLeavesTheLikeliestOfWhatItAllows) {
  for (const size_t size : {31, 32, 33, 97, 1000}) {
    const auto logits = random_logits(size, 7);
    Sampler sampler(*usable_cpu_features(), static_cast<int64_t>(size));
    Request request;
    request.sampling.temperature = 0;
    const FakeConstraint rule(static_cast<int64_t>(size), 5, 100);
    request.constraint = std::make_shared<FakeConstraint>(static_cast<int64_t>(size), 5, 100);
    SamplerState state = Sampler::start(request, 42);
    for (int32_t position = 0; position < 12; ++position) {
      TokenId best = -1;
      for (TokenId id = 0; id < static_cast<TokenId>(size); ++id) {
        if (!rule.allows(id, position)) continue;
        if (best < 0 || logits[static_cast<size_t>(id)] > logits[static_cast<size_t>(best)]) {
          best = id;
        }
      }
      const auto event = sampler.sample(logits, request, state, position, {});
      ASSERT_TRUE(event);
      EXPECT_EQ(event->token, best);
    }
  }
}

TEST_F(SamplerTest, DrawsUnderAConstraintAreTheDistributionOfWhatItAllows) {
  const size_t size = 40;
  const int draws = 20'000;
  const auto logits = random_logits(size, 3);
  Sampler sampler(*usable_cpu_features(), size);
  Request request;
  SamplerState state = Sampler::start(request, 42);
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i) {
    request.constraint = std::make_shared<FakeConstraint>(size, 2, 1);
    const auto event = sampler.sample(logits, request, state, i, {});
    ASSERT_TRUE(event);
    ++counts[event->token];
  }
  auto p = softmax(logits, 1.0);
  double mass = 0;
  for (size_t i = 0; i < size; ++i) mass += i % 2 == 0 ? p[i] : 0;
  for (size_t i = 0; i < size; ++i) p[i] = i % 2 == 0 ? p[i] / mass : 0;
  expect_distribution(counts, p, draws);
}

TEST_F(SamplerTest, AConstraintGoesBeforeForbiddenTokens) {
  const std::vector<float> logits = {1, 5, 2, 4};
  Sampler sampler(*usable_cpu_features(), 4);
  Request request;
  request.sampling.temperature = 0;
  request.constraint = std::make_shared<FakeConstraint>(4, 4, 10);
  SamplerState state = Sampler::start(request, 42);
  const std::vector<TokenId> forbidden = {0};
  const auto event = sampler.sample(logits, request, state, 0, forbidden);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->token, 0) << "the only one that the constraint allows";
}

}  // namespace
}  // namespace tw
