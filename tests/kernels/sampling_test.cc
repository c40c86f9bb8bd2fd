#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/sampling/logits.h"
#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

class LogitsTest : public testing::TestWithParam<const KernelRow<LogitsKernels>*> {
 protected:
  const LogitsKernels& kernels() const { return *GetParam()->functions; }
};

INSTANTIATE_TEST_SUITE_P(Table, LogitsTest, testing::ValuesIn(machine_rows(logits_kernels())),
                         row_name<LogitsKernels>);

// softmax of two logits shows the exponential itself: e^x / (1 + e^x) times the sum.
TEST_P(LogitsTest, ExponentialIsWithinItsBound) {
  for (int i = 0; i <= 200'000; ++i) {
    const float x = -87.3f * static_cast<float>(i) / 200'000.0f;
    const float logits[2] = {0.0f, x};
    float out[2];
    const float sum = kernels().softmax(logits, 2, 1.0f, out);
    // Division by the sum rounds once more each way.
    ASSERT_LE(units_in_last_place(out[1] * sum, std::exp(double{x})), 4.0) << x;
  }
  const float logit = 3.7f;
  float one;
  EXPECT_EQ(kernels().softmax(&logit, 1, 1.0f, &one), 1.0f);  // e^0 is exactly 1
}

TEST_P(LogitsTest, MatchesDoublePrecision) {
  for (const int64_t n : {1, 2, 15, 16, 17, 63, 64, 65, 200, 49152}) {
    std::vector<float> logits = random_floats(n, static_cast<uint32_t>(n));
    for (float& x : logits) x *= 8.0f;
    if (n > 20) logits[5] = -INFINITY;
    double maximum = -INFINITY;
    for (const float x : logits) maximum = std::max(maximum, double{x});
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - maximum);
    // Up to n / 64 + 8 additions in a row, each off by 2^-24 of the sum.
    const double error = (static_cast<double>(n) / 64 + 12) * 0x1p-24;
    EXPECT_NEAR(kernels().log_sum_exp(logits.data(), n), maximum + std::log(sum),
                error + 0x1p-23 * std::abs(maximum + std::log(sum)));

    const float scale = 0.7f;
    double scaled_sum = 0;
    for (const float x : logits) scaled_sum += std::exp(double{scale} * (x - maximum));
    std::vector<float> out(static_cast<size_t>(n));
    kernels().softmax(logits.data(), n, scale, out.data());
    for (int64_t i = 0; i < n; ++i) {
      const double x = logits[static_cast<size_t>(i)];
      const double exact = std::exp(double{scale} * (x - maximum)) / scaled_sum;
      // The exponent x * scale - max * scale is rounded where it may be 50 large.
      ASSERT_NEAR(out[static_cast<size_t>(i)], exact, exact * (error + 60 * 0x1p-24) + 1e-37);
    }
    if (n > 20) {
      EXPECT_EQ(out[5], 0.0f);
    }
    std::vector<float> in_place = logits;
    kernels().softmax(in_place.data(), n, scale, in_place.data());
    EXPECT_EQ(in_place, out);
  }
}

TEST_P(LogitsTest, ArgmaxTakesTheFirstOfEqual) {
  for (const int64_t n : {1, 3, 16, 17, 100, 1000}) {
    std::vector<float> logits = random_floats(n, 3);
    const int64_t plain = std::max_element(logits.begin(), logits.end()) - logits.begin();
    EXPECT_EQ(kernels().argmax(logits.data(), n), plain);
    for (const int64_t place : {int64_t{0}, n / 3, n - 1}) {
      std::vector<float> ties = logits;
      ties[static_cast<size_t>(place)] = 50.0f;
      ties[static_cast<size_t>(n - 1)] = 50.0f;
      EXPECT_EQ(kernels().argmax(ties.data(), n), place);
    }
  }
}

TEST_P(LogitsTest, MaskedAndBrokenLogits) {
  const std::vector<float> masked(100, -INFINITY);
  EXPECT_EQ(kernels().argmax(masked.data(), 100), 0);
  EXPECT_EQ(kernels().log_sum_exp(masked.data(), 100), -INFINITY);
  std::vector<float> out(100, 1.0f);
  EXPECT_EQ(kernels().softmax(masked.data(), 100, 1.0f, out.data()), 0.0f);
  EXPECT_EQ(out, std::vector<float>(100, 0.0f));

  std::vector<float> one = masked;
  one[70] = -3.0f;
  EXPECT_EQ(kernels().argmax(one.data(), 100), 70);
  EXPECT_NEAR(kernels().log_sum_exp(one.data(), 100), -3.0f, 1e-6f);
  kernels().softmax(one.data(), 100, 2.0f, out.data());
  EXPECT_EQ(out[70], 1.0f);
  EXPECT_EQ(out[69], 0.0f);

  for (const int64_t broken : {int64_t{0}, int64_t{33}, int64_t{99}}) {
    std::vector<float> with_nan(100, 1.0f);
    with_nan[static_cast<size_t>(broken)] = NAN;
    with_nan[98] = 2.0f;
    EXPECT_EQ(kernels().argmax(with_nan.data(), 100), 98);
  }
}

TEST_P(LogitsTest, AgreesWithScalarBitForBit) {
  for (const int64_t n : {1, 17, 65, 3001}) {
    const std::vector<float> logits = random_floats(n, 4);
    std::vector<float> expected(logits.size());
    std::vector<float> out(logits.size());
    EXPECT_EQ(scalar::kLogitsKernels.softmax(logits.data(), n, 1.3f, expected.data()),
              kernels().softmax(logits.data(), n, 1.3f, out.data()));
    EXPECT_EQ(out, expected);
    EXPECT_EQ(scalar::kLogitsKernels.log_sum_exp(logits.data(), n),
              kernels().log_sum_exp(logits.data(), n));
  }
}

}  // namespace
}  // namespace tw::kernels
