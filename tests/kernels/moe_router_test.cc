#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/buffer.h"
#include "kernels/moe/moe_kernels.h"
#include "kernels/moe/routing.h"
#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

struct Routed {
  std::vector<int32_t> experts;  // [tokens, top_k]
  std::vector<float> weights;
};

Routed route(const MoeKernels& kernels, const RouterConfig& config,
             const std::vector<float>& logits, int64_t stride,
             const std::vector<float>& bias = {}) {
  const auto tokens = static_cast<int64_t>(logits.size()) / stride;
  Routed routed;
  routed.experts.assign(static_cast<size_t>(tokens * config.top_k), -1);
  routed.weights.assign(routed.experts.size(), -1.0f);
  kernels.route({config,
                 {logits.data(), tokens, config.num_experts, stride},
                 bias.empty() ? nullptr : bias.data(),
                 routed.experts.data(),
                 routed.weights.data()},
                {0, tokens});
  return routed;
}

std::vector<double> exact_scores(const RouterConfig& config, const float* logits) {
  std::vector<double> scores;
  double sum = 0;
  const double largest = *std::max_element(logits, logits + config.num_experts);
  for (int32_t i = 0; i < config.num_experts; ++i) {
    const bool softmax = config.score == ExpertScore::softmax;
    scores.push_back(softmax ? std::exp(logits[i] - largest) : 1 / (1 + std::exp(-logits[i])));
    sum += scores.back();
  }
  if (config.score == ExpertScore::softmax) {
    for (double& score : scores) score /= sum;
  }
  return scores;
}

// The definition, by sorting: experts in order of their choice.
std::vector<int32_t> sorted_choice(const RouterConfig& config, std::vector<double> choice) {
  const int32_t size = config.num_experts / config.num_groups;
  std::vector<std::pair<double, int32_t>> groups;
  for (int32_t g = 0; g < config.num_groups; ++g) {
    std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    const bool two = config.group_score == GroupScore::sum_of_two_best && size > 1;
    groups.emplace_back(-(two ? members[0] + members[1] : members[0]), g);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::pair<double, int32_t>> order;
  for (int32_t g = 0; g < std::min(config.top_groups, config.num_groups); ++g) {
    for (int32_t i = 0; i < size; ++i) {
      const int32_t expert = groups[static_cast<size_t>(g)].second * size + i;
      order.emplace_back(-choice[static_cast<size_t>(expert)], expert);
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<int32_t> experts;
  for (int32_t j = 0; j < config.top_k; ++j)
    experts.push_back(order[static_cast<size_t>(j)].second);
  return experts;
}

class RouterTest : public testing::TestWithParam<const KernelRow<MoeKernels>*> {
 protected:
  const MoeKernels& kernels() const { return *GetParam()->functions; }

  void expect_definition(const RouterConfig& config, bool with_bias, uint32_t seed) const {
    ASSERT_TRUE(config.validate());
    constexpr int64_t kTokens = 37;
    const int64_t stride = config.num_experts + 1;
    const std::vector<float> logits = random_floats(kTokens * stride, seed);
    std::vector<float> bias;
    if (with_bias) bias = random_floats(config.num_experts, seed + 1);
    const Routed routed = route(kernels(), config, logits, stride, bias);
    for (int64_t token = 0; token < kTokens; ++token) {
      const std::vector<double> scores = exact_scores(config, logits.data() + token * stride);
      std::vector<double> choice = scores;
      for (size_t i = 0; i < bias.size(); ++i) choice[i] += bias[i];
      const std::vector<int32_t> expected = sorted_choice(config, choice);
      double sum = 0;
      for (const int32_t expert : expected) sum += scores[static_cast<size_t>(expert)];
      for (int32_t j = 0; j < config.top_k; ++j) {
        const auto at = static_cast<size_t>(token * config.top_k + j);
        ASSERT_EQ(routed.experts[at], expected[static_cast<size_t>(j)]) << "token " << token;
        const double weight = scores[static_cast<size_t>(routed.experts[at])] /
                              (config.renormalize ? sum : 1.0) * config.scale;
        ASSERT_NEAR(routed.weights[at], weight, 1e-6 * std::max(1.0, weight));
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Table, RouterTest, testing::ValuesIn(machine_rows(moe_kernels())),
                         row_name<MoeKernels>);

TEST_P(RouterTest, ChoosesAndWeighsByDefinition) {
  uint32_t seed = 1;
  for (const int32_t num_experts : {1, 4, 8, 60, 128, 1024}) {
    for (const int32_t top_k : {1, 2, 4, 8, 64}) {
      if (top_k > num_experts) continue;
      for (const auto score : {ExpertScore::softmax, ExpertScore::sigmoid}) {
        for (const bool renormalize : {false, true}) {
          const RouterConfig config{.num_experts = num_experts,
                                    .top_k = top_k,
                                    .score = score,
                                    .renormalize = renormalize,
                                    .scale = renormalize ? 2.5f : 1.0f};
          SCOPED_TRACE(num_experts);
          expect_definition(config, false, seed++);
          expect_definition(config, true, seed++);
        }
      }
    }
  }
}

TEST_P(RouterTest, ChoosesWithinTheBestGroups) {
  uint32_t seed = 1000;
  for (const auto group_score : {GroupScore::largest, GroupScore::sum_of_two_best}) {
    for (const int32_t num_groups : {2, 4, 8, 64}) {
      const RouterConfig config{.num_experts = 64,
                                .top_k = std::min(8, 128 / num_groups),
                                .score = ExpertScore::sigmoid,
                                .num_groups = num_groups,
                                .top_groups = num_groups == 64 ? 2 : num_groups / 2,
                                .group_score = group_score,
                                .renormalize = true,
                                .scale = 2.5f};
      expect_definition(config, false, seed++);
      expect_definition(config, true, seed++);
    }
  }
}

TEST_P(RouterTest, TheLowerOfEqualExpertsWins) {
  const std::vector<float> logits = {1, 2, 2, 0, 2, 1, 2, 1};
  const RouterConfig config{.num_experts = 8, .top_k = 5};
  EXPECT_EQ(route(kernels(), config, logits, 8).experts, (std::vector<int32_t>{1, 2, 4, 6, 0}));
  // Scores that round to 1 are told apart by their logits.
  const RouterConfig sigmoid{.num_experts = 4, .top_k = 2, .score = ExpertScore::sigmoid};
  EXPECT_EQ(route(kernels(), sigmoid, {80, 90, 85, 70}, 4).experts, (std::vector<int32_t>{1, 2}));
}

TEST_P(RouterTest, ExtremeLogitsChooseDifferentExperts) {
  const float inf = INFINITY;
  for (const std::vector<float>& logits : {std::vector<float>{NAN, NAN, NAN, NAN, NAN, NAN},
                                           {-inf, -inf, -inf, -inf, -inf, -inf},
                                           {inf, inf, NAN, -inf, 0, 3e38f},
                                           {-3e38f, 3e38f, NAN, NAN, 1e-40f, -0.0f}}) {
    for (const auto score : {ExpertScore::softmax, ExpertScore::sigmoid}) {
      for (const int32_t num_groups : {1, 3}) {
        const RouterConfig config{.num_experts = 6,
                                  .top_k = 4,
                                  .score = score,
                                  .num_groups = num_groups,
                                  .top_groups = num_groups == 1 ? 1 : 2,
                                  .group_score = GroupScore::sum_of_two_best};
        const Routed routed = route(kernels(), config, logits, 6);
        const std::set<int32_t> different(routed.experts.begin(), routed.experts.end());
        EXPECT_EQ(different.size(), 4u);
        EXPECT_GE(*different.begin(), 0);
        EXPECT_LT(*different.rbegin(), 6);
      }
    }
  }
  // What is no number loses against what is one.
  const RouterConfig config{.num_experts = 6, .top_k = 2};
  EXPECT_EQ(route(kernels(), config, {NAN, -5, NAN, NAN, -9, NAN}, 6).experts,
            (std::vector<int32_t>{1, 4}));
}

TEST_P(RouterTest, AllInstructionSetsAgreeBitForBit) {
  const RouterConfig config{.num_experts = 60, .top_k = 4, .renormalize = true};
  const std::vector<float> logits = random_floats(60 * 50, 5);
  const Routed expected = route(scalar::kMoeKernels, config, logits, 60);
  const Routed actual = route(kernels(), config, logits, 60);
  EXPECT_EQ(actual.experts, expected.experts);
  EXPECT_EQ(actual.weights, expected.weights);
}

TEST_P(RouterTest, CombineAddsInOrderOfTheChoice) {
  constexpr int64_t kTokens = 9, kStride = 75;
  for (const int64_t n : {1, 16, 63, 72}) {
    for (const int32_t top_k : {1, 3}) {
      std::vector<int32_t> rows(static_cast<size_t>(kTokens * top_k));
      std::iota(rows.begin(), rows.end(), 0);
      std::shuffle(rows.begin(), rows.end(), std::mt19937(3));
      rows.back() = kElsewhere;
      const std::vector<float> weights = random_floats(kTokens * top_k, 1);
      const std::vector<float> output = random_floats(kTokens * top_k * kStride, 2);
      const std::vector<float> shared = random_floats(kTokens * kStride, 3);
      const std::vector<float> gate = random_floats(kTokens * 2, 4);
      for (const int variant : {0, 1, 2, 3}) {
        CombineArguments a;
        a.top_k = top_k;
        a.rows = rows.data();
        if (variant != 3) a.weights = weights.data();
        a.expert_output = {output.data(), kTokens * top_k, n, kStride};
        if (variant > 0) a.shared = {shared.data(), kTokens, n, kStride};
        if (variant > 1) a.shared_gate = {gate.data(), kTokens, 1, 2};
        a.accumulate = variant % 2 == 1;
        std::vector<float> out(static_cast<size_t>(kTokens * kStride), 7.0f);
        a.out = {out.data(), kTokens, n, kStride};
        kernels().combine(a, {1, kTokens});
        for (int64_t t = 0; t < kTokens; ++t) {
          for (int64_t i = 0; i < kStride; ++i) {
            const float value = out[static_cast<size_t>(t * kStride + i)];
            if (t < 1 || i >= n) {
              ASSERT_EQ(value, 7.0f);
              continue;
            }
            double expected = a.accumulate ? 7.0 : 0.0;
            for (int32_t j = 0; j < top_k; ++j) {
              const auto at = static_cast<size_t>(t * top_k + j);
              if (rows[at] == kElsewhere) continue;
              const double weight = variant == 3 ? 1.0 : double{weights[at]};
              expected += weight * output[static_cast<size_t>(rows[at] * kStride + i)];
            }
            if (variant > 0) {
              const double x = gate[static_cast<size_t>(t * 2)];
              expected += (variant > 1 ? 1 / (1 + std::exp(-x)) : 1.0) *
                          shared[static_cast<size_t>(t * kStride + i)];
            }
            ASSERT_NEAR(value, expected, 1e-5);
          }
        }
      }
    }
  }
}

TEST(RouterConfigTest, NamesTheNumberThatDoesNotFit) {
  const auto message = [](const RouterConfig& config) {
    const Status status = config.validate();
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(message({.num_experts = 0, .top_k = 1}).find("0 experts"), std::string::npos);
  EXPECT_NE(message({.num_experts = 5000, .top_k = 1}).find("5000"), std::string::npos);
  EXPECT_NE(message({.num_experts = 8, .top_k = 9}).find("9 experts per token"), std::string::npos);
  EXPECT_NE(message({.num_experts = 8, .top_k = 2, .num_groups = 3}).find("3 groups"),
            std::string::npos);
  EXPECT_NE(
      message({.num_experts = 8, .top_k = 3, .num_groups = 8, .top_groups = 2}).find("2 groups"),
      std::string::npos);
  EXPECT_EQ(message({.num_experts = 8, .top_k = 2, .num_groups = 8, .top_groups = 2}), "");
}

TEST(RoutingTest, SortsByExpertThenTokenForAnyNumberOfThreads) {
  constexpr int64_t kTokens = 53;
  constexpr int32_t kExperts = 7, kTopK = 3;
  std::mt19937 random(1);
  std::vector<int32_t> experts;
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<int32_t> all(kExperts);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end() - 1, random);  // the last expert gets nothing
    experts.insert(experts.end(), all.begin(), all.begin() + kTopK);
  }
  for (const int num_threads : {1, 2, 3, 5, 7, 64}) {
    const RoutingLimits limits{kTokens, kExperts, kTopK, num_threads};
    auto memory = Buffer::allocate(routing_size(limits));
    ASSERT_TRUE(memory);
    const Routing routing = layout_routing(limits, memory->data());
    std::copy(experts.begin(), experts.end(), routing.experts);
    for (size_t i = 0; i < experts.size(); ++i) routing.weights[i] = static_cast<float>(i);
    for (int rank = 0; rank < num_threads; ++rank) {
      count_choices(routing, rank, partition(kTokens, rank, num_threads));
    }
    for (int rank = num_threads - 1; rank >= 0; --rank) {
      place_choices(routing, rank, num_threads, partition(kTokens, rank, num_threads));
    }
    std::vector<int32_t> token_of_row(experts.size(), -1);
    for (size_t i = 0; i < experts.size(); ++i) {
      const int32_t row = routing.rows[i];
      ASSERT_GE(row, routing.starts[experts[i]]);
      ASSERT_LT(row, routing.starts[experts[i] + 1]);
      ASSERT_EQ(token_of_row[static_cast<size_t>(row)], -1);
      token_of_row[static_cast<size_t>(row)] = static_cast<int32_t>(i) / kTopK;
      ASSERT_EQ(routing.row_weights[row], static_cast<float>(i));
    }
    EXPECT_EQ(routing.starts[0], 0);
    EXPECT_EQ(routing.starts[kExperts], static_cast<int32_t>(experts.size()));
    EXPECT_EQ(routing.starts[kExperts - 1], routing.starts[kExperts]);
    for (int32_t e = 0; e < kExperts; ++e) {
      EXPECT_TRUE(std::is_sorted(token_of_row.begin() + routing.starts[e],
                                 token_of_row.begin() + routing.starts[e + 1]));
    }
  }
}

// Rows of prompts begin where those of generated tokens end at the latest.
TEST(RoutingTest, PromptsAreAClassOfTheirOwn) {
  const RoutingLimits limits{5, 3, 2, 3};
  auto memory = Buffer::allocate(routing_size(limits));
  ASSERT_TRUE(memory);
  Routing routing = layout_routing(limits, memory->data());
  routing.first_prompt = 2;
  const int32_t experts[] = {2, 0, kElsewhere, 2, 1, 0, 0, 2, kElsewhere, 1};
  std::ranges::copy(experts, routing.experts);
  for (int i = 0; i < 10; ++i) routing.weights[i] = static_cast<float>(i);
  for (int rank = 0; rank < 3; ++rank) count_choices(routing, rank, partition(5, rank, 3));
  for (int rank = 0; rank < 3; ++rank) place_choices(routing, rank, 3, partition(5, rank, 3));
  EXPECT_EQ((std::vector<int32_t>(routing.rows, routing.rows + 10)),
            (std::vector<int32_t>{1, 0, kElsewhere, 2, 6, 4, 5, 8, kElsewhere, 7}));
  EXPECT_EQ((std::vector<int32_t>(routing.starts, routing.starts + 4)),
            (std::vector<int32_t>{0, 1, 1, 3}));
  EXPECT_EQ((std::vector<int32_t>(routing.prompt_starts(), routing.prompt_starts() + 4)),
            (std::vector<int32_t>{4, 6, 8, 9}));
  for (int i = 0; i < 10; ++i) {
    if (routing.rows[i] < 0) continue;
    EXPECT_EQ(routing.row_weights[routing.rows[i]], routing.weights[i]);
  }
}

}  // namespace
}  // namespace tw::kernels
