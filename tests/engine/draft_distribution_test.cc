// Sampled output with drafts has the distribution that the model and the request's parameters give
// it, whatever is guessed: a chi-square test of what an engine generates against that distribution,
// computed here from the model's logits. A greedy draft model guesses every token, rightly or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "engine/engine.h"
#include "engine/fake_model.h"

namespace tw {
namespace {

using testing_support::FakeModel;

constexpr int kSamples = 4000;
constexpr int32_t kLength = 4;  // the first of these is sampled before anything can be guessed
// The 0.9999 quantile for 96 degrees of freedom. Cells differ from sample to sample, which makes
// the statistic smaller than chi-square.
constexpr double kCritical = 155;

// What sampling is defined to do (sampler.h), in plain steps.
std::vector<double> distribution(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<double> share(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += share[i] = std::exp(static_cast<double>(logits[i]) / params.temperature);
  }
  for (double& value : share) value /= sum;
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return share[i]; });
  const auto count = params.top_k > 0 ? static_cast<size_t>(params.top_k) : order.size();
  double total = 0, kept = 0;
  for (size_t rank = 0; rank < count; ++rank) total += share[order[rank]];
  std::vector<double> result(logits.size());
  for (size_t rank = 0; rank < count && kept < params.top_p * total; ++rank) {
    if (share[order[rank]] < params.min_p * share[order[0]]) break;
    kept += result[order[rank]] = share[order[rank]];
  }
  for (double& value : result) value /= kept;
  return result;
}

// Counts tokens beside how many were expected, by the rank that their context gave them: what a
// greedy guess gains or loses shows at rank 0.
class ChiSquare {
 public:
  void add(const std::vector<double>& expected, TokenId token) {
    std::vector<size_t> order(expected.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return expected[i]; });
    for (size_t rank = 0; rank < order.size(); ++rank) {
      expected_[rank] += expected[order[rank]];
      counts_[rank] += order[rank] == static_cast<size_t>(token) ? 1 : 0;
    }
  }
  double value() const {
    double sum = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const double difference = counts_[i] - expected_[i];
      sum += difference * difference / std::max(expected_[i], 1e-9);
    }
    return sum;
  }

 private:
  std::vector<double> expected_ = std::vector<double>(FakeModel::kVocabSize);
  std::vector<double> counts_ = std::vector<double>(FakeModel::kVocabSize);
};

struct Samples {
  std::vector<std::vector<TokenId>> texts;
  EngineStats stats;
};

const std::vector<TokenId> kPrompt = {5, 6, 7};

// The draft model's greedy guess is the model's likeliest token but at every `errs_every`-th
// position, where it is another one.
Samples sample(const SamplingParams& params, int32_t errs_every, bool trees = false) {
  auto draft = std::make_unique<FakeModel>();
  draft->errs_every = errs_every;
  EngineConfig config;
  if (trees) {
    config.page_size = 4;
    config.speculative_eagle_topk = 3;
    draft->hesitates_every = 2;
  }
  config.speculative_algorithm = "STANDALONE";
  config.speculative_num_steps = 3;
  config.max_running_requests = 8;  // few enough for all to have guesses
  config.max_queued_requests = kSamples;
  auto engine = Engine::create(std::make_unique<FakeModel>(), config, std::move(draft));
  EXPECT_TRUE(engine) << engine.error().message;
  Samples samples;
  samples.texts.resize(kSamples);
  std::atomic<int> left = kSamples;
  for (size_t i = 0; i < kSamples; ++i) {
    Request request;
    request.prompt = kPrompt;
    request.sampling = params;
    request.sampling.seed = i;
    request.sampling.max_new_tokens = kLength;
    request.sink = [&samples, &left, i](EngineOutput&& output) {
      for (const TokenEvent& event : output.tokens) samples.texts[i].push_back(event.token);
      if (output.finish_reason == FinishReason::none) return;
      left.fetch_sub(1);
      left.notify_all();
    };
    EXPECT_TRUE((*engine)->submit(std::move(request)));
  }
  for (int now = left; now > 0; now = left) left.wait(now);
  samples.stats = (*engine)->stats();
  return samples;
}

// Of the tokens at one place of the output, given those before.
double chi_square(const std::vector<std::vector<TokenId>>& texts, size_t place,
                  const SamplingParams& params) {
  ChiSquare statistic;
  for (const auto& text : texts) {
    std::vector<TokenId> context = kPrompt;
    context.insert(context.end(), text.begin(), text.begin() + static_cast<int64_t>(place));
    statistic.add(distribution(FakeModel::logits_after(context), params), text[place]);
  }
  return statistic.value();
}

std::vector<SamplingParams> sampling_modes() {
  std::vector<SamplingParams> modes(5);
  modes[1].temperature = 2.0f;
  modes[2].top_k = 20;
  modes[3].top_p = 0.8f;
  modes[4].temperature = 1.5f;
  modes[4].min_p = 0.05f;
  return modes;
}

TEST(DraftDistribution, IsThatOfTheModelWithTreesOfGuesses) {
  for (const SamplingParams& params : {sampling_modes().front(), sampling_modes()[3]}) {
    const Samples samples = sample(params, 0, true);
    EXPECT_GT(samples.stats.accepted_draft_tokens_total, kSamples / 10);
    for (size_t place = 0; place < kLength; ++place) {
      EXPECT_LT(chi_square(samples.texts, place, params), kCritical) << "place " << place;
    }
  }
}

TEST(DraftDistribution, IsThatOfTheModelWhateverIsGuessed) {
  for (const SamplingParams& params : sampling_modes()) {
    for (const int32_t errs_every : {0, 1, 2}) {
      const Samples samples = sample(params, errs_every);
      EXPECT_GT(samples.stats.draft_tokens_total, 2 * kSamples);
      EXPECT_GT(samples.stats.accepted_draft_tokens_total, errs_every == 1 ? 0 : kSamples / 10);
      for (size_t place = 0; place < kLength; ++place) {
        EXPECT_LT(chi_square(samples.texts, place, params), kCritical)
            << "temperature " << params.temperature << ", top_k " << params.top_k << ", top_p "
            << params.top_p << ", a wrong guess at every " << errs_every << ", place " << place;
      }
    }
  }
}

// That the statistic would notice: a guess that is taken somewhat too often, and a second draw from
// the whole distribution where only what the guess left may come.
TEST(DraftDistribution, TheTestFindsWrongAcceptance) {
  const SamplingParams params;
  Samples samples = sample(params, 0);
  std::vector<std::vector<TokenId>> eager = samples.texts, redrawn = samples.texts;
  for (size_t i = 0; i < kSamples; ++i) {
    std::vector<TokenId> context = kPrompt;
    context.push_back(samples.texts[i][0]);
    const TokenId guess = FakeModel::next_token(context);
    if (i % 6 == 0) eager[i][1] = guess;
    if (redrawn[i][1] != guess) {
      // Another request's draw for the same first token, if there is one: from all of it.
      for (size_t k = i + 1; k < kSamples; ++k) {
        if (samples.texts[k][0] != samples.texts[i][0]) continue;
        redrawn[i][1] = samples.texts[k][1];
        break;
      }
    }
  }
  EXPECT_LT(chi_square(samples.texts, 1, params), kCritical);
  EXPECT_GT(chi_square(eager, 1, params), kCritical);
  EXPECT_GT(chi_square(redrawn, 1, params), kCritical);
}

}  // namespace
}  // namespace tw
