#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

class NormTest : public testing::TestWithParam<const KernelRow<NormKernels>*> {
 protected:
  const NormKernels& kernels() const { return *GetParam()->functions; }
};

INSTANTIATE_TEST_SUITE_P(Table, NormTest, testing::ValuesIn(machine_rows(norm_kernels())),
                         row_name<NormKernels>);

constexpr int64_t kSizes[] = {1, 7, 15, 16, 17, 63, 64, 65, 100, 576, 2048};
constexpr float kEpsilon = 1e-5f;

// Rows with a stride larger than they are long, so that writes past a row are seen.
struct Rows {
  int64_t count = 3;
  int64_t n;
  int64_t stride;
  std::vector<float> values;

  Rows(int64_t size, uint32_t seed)
      : n(size), stride(size + 5), values(random_floats(3 * (size + 5), seed)) {}
  Matrix<const float> input() const { return {values.data(), count, n, stride}; }
  Matrix<float> output() { return {values.data(), count, n, stride}; }
  float at(int64_t row, int64_t i) const { return values[static_cast<size_t>(row * stride + i)]; }
};

// The scale is off by at most half of what its sum is, (n / 64 + 8) 2^-24, plus four roundings; the
// element by two more.
double relative_bound(int64_t n) {
  return (0.5 * static_cast<double>(n) / 64 + 10) * 0x1p-24;
}

double rms_normed(const Rows& x, int64_t row, int64_t i, double weight) {
  double squares = 0;
  for (int64_t j = 0; j < x.n; ++j) squares += double{x.at(row, j)} * x.at(row, j);
  return x.at(row, i) / std::sqrt(squares / static_cast<double>(x.n) + double{kEpsilon}) * weight;
}

TEST_P(NormTest, RmsNormMatchesDoublePrecision) {
  for (const int64_t n : kSizes) {
    for (const float offset : {0.0f, 1.0f}) {
      const Rows x(n, 1);
      const std::vector<float> weight = random_floats(n, 2);
      Rows out(n, 3);
      const Rows before = out;
      kernels().rms_norm({x.input(), out.output(), weight.data(), kEpsilon, offset}, {1, 3});
      for (int64_t row = 0; row < 3; ++row) {
        for (int64_t i = 0; i < out.stride; ++i) {
          if (row == 0 || i >= n) {
            ASSERT_EQ(out.at(row, i), before.at(row, i)) << "written outside of the range";
            continue;
          }
          const double w = double{weight[static_cast<size_t>(i)]} + double{offset};
          const double exact = rms_normed(x, row, i, w);
          // weight + offset is rounded, too.
          ASSERT_NEAR(out.at(row, i), exact,
                      std::abs(exact) * relative_bound(n) + std::abs(x.at(row, i)) * 0x1p-22);
        }
      }
    }
  }
}

TEST_P(NormTest, RmsNormInPlaceAndAfterAnAdditionAreTheSame) {
  for (const int64_t n : kSizes) {
    const Rows x(n, 4);
    const Rows delta(n, 5);
    const std::vector<float> weight = random_floats(n, 6);
    Rows residual = x;
    Rows out(n, 7);
    kernels().add_rms_norm(
        {delta.input(), residual.output(), out.output(), weight.data(), kEpsilon, 0.0f}, {0, 3});
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(residual.at(row, i), x.at(row, i) + delta.at(row, i));
      }
    }
    Rows in_place = residual;
    kernels().rms_norm({in_place.input(), in_place.output(), weight.data(), kEpsilon, 0.0f},
                       {0, 3});
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(in_place.at(row, i), out.at(row, i));
    }
  }
}

TEST_P(NormTest, AddNormedAddsTheSameNorm) {
  for (const int64_t n : kSizes) {
    const Rows x(n, 12);
    const std::vector<float> weight = random_floats(n, 13);
    Rows normed(n, 14);
    kernels().rms_norm({x.input(), normed.output(), weight.data(), kEpsilon, 1.0f}, {0, 3});
    Rows sum(n, 15);
    const Rows before = sum;
    kernels().add_normed({x.input(), sum.output(), weight.data(), kEpsilon, 1.0f}, {1, 3});
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t i = 0; i < sum.stride; ++i) {
        const bool added = row > 0 && i < n;
        ASSERT_EQ(sum.at(row, i), before.at(row, i) + (added ? normed.at(row, i) : 0.0f));
      }
    }
  }
}

TEST_P(NormTest, LayerNormMatchesDoublePrecision) {
  for (const int64_t n : kSizes) {
    Rows x(n, 8);
    for (float& value : x.values) value += 3.0f;
    const std::vector<float> weight = random_floats(n, 9);
    const std::vector<float> bias = random_floats(n, 10);
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      Rows out(n, 11);
      const Rows before = out;
      kernels().layer_norm({x.input(), out.output(), weight.data(), b, kEpsilon}, {0, 2});
      for (int64_t row = 0; row < 3; ++row) {
        double mean = 0;
        for (int64_t i = 0; i < n; ++i) mean += x.at(row, i);
        mean /= static_cast<double>(n);
        double variance = 0;
        for (int64_t i = 0; i < n; ++i) variance += std::pow(x.at(row, i) - mean, 2);
        variance /= static_cast<double>(n);
        const double scale = 1 / std::sqrt(variance + double{kEpsilon});
        for (int64_t i = 0; i < n; ++i) {
          if (row == 2) {
            ASSERT_EQ(out.at(row, i), before.at(row, i));
            continue;
          }
          const auto index = static_cast<size_t>(i);
          const double normed = (x.at(row, i) - mean) * scale * weight[index];
          // The mean, about 3, is off by n / 64 + 8 roundings, which every element sees; epsilon
          // bounds the scale that it is multiplied by.
          const double mean_error = 6 * relative_bound(n) * scale * std::abs(weight[index]);
          ASSERT_NEAR(out.at(row, i), normed + (b == nullptr ? 0 : b[i]),
                      mean_error + 4 * relative_bound(n) * (std::abs(normed) + 1));
        }
      }
    }
  }
}

TEST_P(NormTest, AgreesWithScalarBitForBit) {
  for (const int64_t n : kSizes) {
    const Rows x(n, 12);
    const std::vector<float> weight = random_floats(n, 13);
    Rows expected(n, 14);
    Rows out = expected;
    scalar::kNormKernels.rms_norm({x.input(), expected.output(), weight.data(), kEpsilon, 1.0f},
                                  {0, 3});
    kernels().rms_norm({x.input(), out.output(), weight.data(), kEpsilon, 1.0f}, {0, 3});
    EXPECT_EQ(out.values, expected.values);
    scalar::kNormKernels.layer_norm(
        {x.input(), expected.output(), weight.data(), nullptr, kEpsilon}, {0, 3});
    kernels().layer_norm({x.input(), out.output(), weight.data(), nullptr, kEpsilon}, {0, 3});
    EXPECT_EQ(out.values, expected.values);
  }
}

TEST_P(NormTest, ZeroRowGivesZeros) {
  const std::vector<float> x(32, 0.0f);
  const std::vector<float> weight(32, 2.0f);
  std::vector<float> out(32, 1.0f);
  kernels().rms_norm(
      {dense_matrix(x.data(), 1, 32), dense_matrix(out.data(), 1, 32), weight.data(), 1e-6f, 0.0f},
      {0, 1});
  EXPECT_EQ(out, x);
}

}  // namespace
}  // namespace tw::kernels
