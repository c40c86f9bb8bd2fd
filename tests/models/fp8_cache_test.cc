// What an fp8 KV cache costs on real text: 2048 tokens of one context through SmolLM2, with the
// cache in bf16 and in fp8.
//
// Almost all of the divergence comes from the keys, whose three bits of mantissa meet large
// products of single dimensions: in Transformers (fp32) rounded keys alone give 0.018 nats, rounded
// values alone 0.001, and scales change nothing, as e4m3 is a floating-point format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "models/forward_runner.h"
#include "models/real_model.h"
#include "models/registry.h"
#include "text/tokenizer.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

using kernels::KvType;
using testing_support::ForwardRunner;

constexpr const char* kTextFile = "/usr/share/common-licenses/GPL-3";
constexpr size_t kNumTokens = 2048;
constexpr size_t kChunk = 256;

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// Of the distributions of the next token, in nats: sum p (log p - log q).
double divergence(std::span<const float> p, std::span<const float> q) {
  const double p_norm = log_sum_exp(p);
  const double q_norm = log_sum_exp(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_norm;
    sum += std::exp(log_p) * (log_p - (q[i] - q_norm));
  }
  return sum;
}

TEST(Fp8CacheTest, DivergesLittle) {
  const auto path = testing_support::real_model_path();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing; run make setup";
  std::ifstream file(kTextFile, std::ios::binary);
  if (!file) GTEST_SKIP() << kTextFile << " is missing";
  const std::string text{std::istreambuf_iterator<char>(file), {}};

  ThreadTeam team(2);
  auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  auto source = (*checkpoint)->tokenizer_source();
  ASSERT_TRUE(source);
  auto tokenizer = Tokenizer::from_gguf(*source->gguf);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  auto ids = tokenizer->encode(text, false);
  ASSERT_TRUE(ids);
  ASSERT_GE(ids->size(), kNumTokens);
  ids->resize(kNumTokens);

  std::vector<std::unique_ptr<Model>> models;
  for (const KvType type : {KvType::bf16, KvType::fp8_e4m3}) {
    WeightLoader loader(**checkpoint, team,
                        {*usable_cpu_features(), kernels::ActivationPrecision::bf16});
    loader.kv_type = type;
    auto model = load_model(loader);
    ASSERT_TRUE(model) << model.error().message;
    models.push_back(std::move(*model));
  }
  EXPECT_EQ(models[0]->limits().kv_bytes_per_token, 2 * models[1]->limits().kv_bytes_per_token);

  ForwardRunner exact(*models[0], kNumTokens, kChunk);
  ForwardRunner rounded(*models[1], kNumTokens, kChunk);
  const auto width = static_cast<size_t>(models[0]->limits().vocab_size);
  const std::span<const int32_t> tokens = *ids;
  double sum = 0;
  double largest = 0;
  for (size_t begin = 0; begin < kNumTokens; begin += kChunk) {
    const Matrix<const float> p = exact.step({{tokens}}, begin, begin + kChunk);
    const Matrix<const float> q = rounded.step({{tokens}}, begin, begin + kChunk);
    for (int64_t row = 0; row < p.rows; ++row) {
      const double kl = divergence({p.row(row), width}, {q.row(row), width});
      sum += kl;
      largest = std::max(largest, kl);
    }
  }
  const double mean = sum / kNumTokens;
  fmt::print("SmolLM2, fp8 cache against bf16, {} tokens: KL {:.5f} nats (largest {:.3f})\n",
             kNumTokens, mean, largest);
  EXPECT_LT(mean, 0.03);
  EXPECT_GT(mean, 0.0);
}

}  // namespace
}  // namespace tw
