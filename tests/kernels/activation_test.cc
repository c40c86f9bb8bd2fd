#include "kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

class ActivationTest : public testing::TestWithParam<const KernelRow<ActivationKernels>*> {
 protected:
  const ActivationKernels& kernels() const { return *GetParam()->functions; }

  std::vector<float> plain(Activation activation, const std::vector<float>& x) const {
    std::vector<float> out(x.size());
    const auto n = static_cast<int64_t>(x.size());
    kernels().plain({activation, dense_matrix(x.data(), 1, n), dense_matrix(out.data(), 1, n)},
                    {0, 1});
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Table, ActivationTest,
                         testing::ValuesIn(machine_rows(activation_kernels())),
                         row_name<ActivationKernels>);

double exact_activation(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
  }
  return 0;
}

std::vector<float> sweep(float low, float high, int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) {
    x.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(count - 1));
  }
  return x;
}

TEST_P(ActivationTest, SiluAndSigmoidAreWithinTheirBounds) {
  const std::vector<float> x = sweep(-80.0f, 100.0f, 200'003);
  for (const Activation activation : {Activation::silu, Activation::sigmoid}) {
    const std::vector<float> y = plain(activation, x);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(units_in_last_place(y[i], exact_activation(activation, x[i])), 4.0)
          << to_string(activation) << " " << x[i];
    }
  }
}

TEST_P(ActivationTest, GeluIsWithinItsBound) {
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh}) {
    const std::vector<float> x = sweep(-12.0f, 12.0f, 100'007);
    const std::vector<float> y = plain(activation, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double bound = 3e-7 * std::max(1.0, std::abs(double{x[i]}));
      ASSERT_NEAR(y[i], exact_activation(activation, x[i]), bound) << x[i];
    }
  }
}

TEST_P(ActivationTest, ExtremesStayFinite) {
  for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    const std::vector<float> y = plain(activation, {0.0f, 1e4f, -1e4f, 3e38f, -1e-40f});
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 1e4f);
    EXPECT_NEAR(y[2], 0.0f, 1e-30f);
    EXPECT_EQ(y[3], 3e38f);
    EXPECT_NEAR(y[4], 0.0f, 1e-38f);
    EXPECT_TRUE(std::isnan(plain(activation, {NAN})[0])) << to_string(activation);
  }
}

TEST_P(ActivationTest, GatedLayoutsAgreeWithPlain) {
  for (const int64_t n : {1, 15, 16, 17, 48, 100}) {
    const int64_t rows = 5;
    const int64_t panels = (n + 15) / 16;
    const std::vector<float> both = random_floats(rows * 2 * n, 1);  // rows of gate, then up
    std::vector<float> interleaved(static_cast<size_t>(rows * panels * 32), 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        float* panel = &interleaved[static_cast<size_t>(row * panels * 32 + i / 16 * 32 + i % 16)];
        panel[0] = both[static_cast<size_t>(row * 2 * n + i)];
        panel[16] = both[static_cast<size_t>(row * 2 * n + n + i)];
      }
    }
    for (const Activation activation :
         {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::sigmoid}) {
      // A line of padding around shows writes past the range.
      std::vector<float> out(static_cast<size_t>(rows * n), -7.0f);
      kernels().gated({activation,
                       {both.data(), rows, n, 2 * n},
                       {both.data() + n, rows, n, 2 * n},
                       dense_matrix(out.data(), rows, n)},
                      {1, rows - 1});
      std::vector<float> from_panels(out.size(), -7.0f);
      kernels().interleaved(
          {activation, dense_matrix<const float>(interleaved.data(), rows, panels * 32),
           dense_matrix(from_panels.data(), rows, n)},
          {1, rows - 1});
      EXPECT_EQ(out, from_panels);
      for (int64_t row = 0; row < rows; ++row) {
        const float* gate = &both[static_cast<size_t>(row * 2 * n)];
        const std::vector<float> activated = plain(activation, {gate, gate + n});
        for (int64_t i = 0; i < n; ++i) {
          const bool inside = row >= 1 && row < rows - 1;
          ASSERT_EQ(out[static_cast<size_t>(row * n + i)],
                    inside ? activated[static_cast<size_t>(i)] * gate[n + i] : -7.0f);
        }
      }
    }
  }
}

TEST_P(ActivationTest, AgreesWithScalarBitForBit) {
  const std::vector<float> x = sweep(-95.0f, 95.0f, 10'001);
  for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    std::vector<float> expected(x.size());
    const auto n = static_cast<int64_t>(x.size());
    scalar::kActivationKernels.plain(
        {activation, dense_matrix(x.data(), 1, n), dense_matrix(expected.data(), 1, n)}, {0, 1});
    EXPECT_EQ(plain(activation, x), expected);
  }
}

TEST_P(ActivationTest, SoftCapBoundsAndKeepsTheRest) {
  constexpr int64_t kColumns = 53, kStride = 60;
  for (const float cap : {0.5f, 30.0f}) {
    std::vector<float> x = random_floats(2 * kStride, 21);
    for (float& value : x) value *= 40.0f;
    x[3] = 1e30f;
    const std::vector<float> before = x;
    kernels().soft_cap({cap, {x.data(), 2, kColumns, kStride}}, {2, 51});
    for (size_t i = 0; i < x.size(); ++i) {
      const auto column = static_cast<int64_t>(i) % kStride;
      if (column < 2 || column >= 51) {
        ASSERT_EQ(x[i], before[i]);
        continue;
      }
      ASSERT_NEAR(x[i], cap * std::tanh(double{before[i]} / cap), cap * 5e-7);
    }
  }
}

}  // namespace
}  // namespace tw::kernels
