#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "core/dtype.h"
#include "kernels/gemm_fixture.h"

namespace tw::kernels {
namespace {

std::vector<const GemmKernel*> machine_kernels() {
  const auto features = usable_cpu_features();
  TW_CHECK(features.has_value());
  std::vector<const GemmKernel*> kernels;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (kernel.supported(*features)) kernels.push_back(&kernel);
  }
  return kernels;
}

class GemmKernelTest : public testing::TestWithParam<const GemmKernel*> {
 protected:
  const GemmKernel& kernel() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Table, GemmKernelTest, testing::ValuesIn(machine_kernels()),
                         [](const auto& test) { return std::string(test.param->name); });

float prepared_value(const PreparedActivations& a, int64_t m, int64_t k) {
  const int64_t index = m * a.row_stride + k;
  switch (a.format) {
    case ActivationFormat::f32:
      return reinterpret_cast<const float*>(a.values)[index];
    case ActivationFormat::bf16:
      return to_float(reinterpret_cast<const bf16_t*>(a.values)[index]);
    case ActivationFormat::q8:
      return a.groups[m * a.group_stride + k / 32].scale *
             static_cast<float>(reinterpret_cast<const int8_t*>(a.values)[index]);
    case ActivationFormat::int8:
      return a.groups[m * a.group_stride].scale *
             static_cast<float>(reinterpret_cast<const int8_t*>(a.values)[index]);
  }
  return 0;
}

// Weights of output channel n as the kernel multiplies them, and what its sums are multiplied by:
// quantized weights that meet bf16 activations are rounded to bf16 first.
struct MultipliedWeights {
  std::vector<float> row;
  float output_scale = 1.0f;
};

// Of fp8, scales are taken relative to the largest of the channel.
MultipliedWeights rounded_fp8_weights(const PackedWeight& weight, int64_t n) {
  MultipliedWeights weights{std::vector<float>(static_cast<size_t>(weight.k())), 0.0f};
  const std::byte* panel = weight.panel(n / kTileN);
  const int channel = static_cast<int>(n % kTileN);
  const auto scale = [&](int64_t k) { return group_values(weight, panel, channel, k).scale; };
  for (int64_t k = 0; k < weight.k(); ++k) {
    weights.output_scale = std::max(weights.output_scale, std::abs(scale(k)));
  }
  if (weights.output_scale == 0.0f) return weights;
  for (int64_t k = 0; k < weight.k(); ++k) {
    const auto bits = static_cast<uint8_t>(stored_quant(weight, panel, channel, k));
    const float value = to_float(f8_e4m3_t{bits}) * (scale(k) / weights.output_scale);
    weights.row[static_cast<size_t>(k)] = to_float(to_bf16(value));
  }
  return weights;
}

MultipliedWeights multiplied_weights(const GemmKernel& kernel, const PackedWeight& weight,
                                     int64_t n) {
  MultipliedWeights weights{std::vector<float>(static_cast<size_t>(weight.k())), 1.0f};
  const bool are_rounded = kernel.activations == ActivationFormat::bf16;
  if (are_rounded && kernel.format == WeightFormat::fp8) return rounded_fp8_weights(weight, n);
  if (!are_rounded) {
    unpack_row(weight, n, weights.row.data());
    return weights;
  }
  // The same panels without output scales, which come after the rounding.
  auto unscaled = PackedWeight::describe(weight.format(), weight.n(), weight.k());
  TW_CHECK(unscaled.has_value());
  unscaled->place(const_cast<std::byte*>(weight.panel(0)));
  unpack_row(*unscaled, n, weights.row.data());
  for (float& w : weights.row) w = to_float(to_bf16(w));
  const auto scales = weight.output_scales();
  if (!scales.empty()) weights.output_scale = scales[static_cast<size_t>(n)];
  return weights;
}

double minimum_at(const PackedWeight& weight, int64_t n, size_t k) {
  if (!traits(weight.format()).has_minimum) return 0;
  return group_values(weight, weight.panel(n / kTileN), static_cast<int>(n % kTileN),
                      static_cast<int64_t>(k))
      .minimum;
}

// Against sums in double of the prepared activations and unpacked weights. Each of at most
// 3 K + 3 fp32 roundings (products, scales, sums) is at most 2^-24 of what the magnitudes add up
// to; with bf16 instructions, which round on their own, twice that. Those also take denormal
// activations and products for zero.
void expect_close_to_double(const GemmKernel& kernel, const GemmProblem& problem,
                            const std::vector<float>& c) {
  const Prepared prepared = prepare(kernel, problem);
  std::vector<double> a;  // [m, k]
  for (int64_t m = 0; m < problem.m; ++m) {
    for (int64_t k = 0; k < problem.k; ++k) a.push_back(prepared_value(prepared.view, m, k));
  }
  const auto depth = static_cast<size_t>(problem.k);
  const bool is_bf16 = kernel.activations == ActivationFormat::bf16;
  const double unit = (is_bf16 ? 2.0 : 1.0) * 0x1p-24;
  std::vector<double> w(depth), sizes(depth);
  for (int64_t n = 0; n < problem.n; ++n) {
    const MultipliedWeights weights = multiplied_weights(kernel, problem.weight, n);
    double flushed = 0;
    for (size_t k = 0; k < depth; ++k) {
      w[k] = double{weights.row[k]} * weights.output_scale;
      sizes[k] = std::abs(w[k]) + 2 * std::abs(minimum_at(problem.weight, n, k));
      flushed += (1 + std::abs(w[k])) * 0x1p-126;
    }
    for (int64_t m = 0; m < problem.m; ++m) {
      const double* x = a.data() + m * problem.k;
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < depth; ++k) {
        sum += w[k] * x[k];
        magnitude += sizes[k] * std::abs(x[k]);
      }
      double bound = (3.0 * static_cast<double>(problem.k) + 3) * unit * magnitude;
      if (is_bf16) bound += flushed;
      ASSERT_NEAR(c[static_cast<size_t>(m * problem.n + n)], sum, bound)
          << kernel.name << " [" << m << ", " << n << "] of " << problem.m << " x " << problem.n
          << " x " << problem.k;
    }
  }
}

void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected,
                      const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << ": element " << i << " is " << actual[i] << ", expected " << expected[i];
  }
}

// f32 and q8 kernels follow the documented order of operations, whatever the instruction set.
void expect_correct(const GemmKernel& kernel, const GemmProblem& problem,
                    const GemmOptions& options, const std::vector<float>& c) {
  if (kernel.activations != ActivationFormat::bf16) {
    expect_same_bits(c, compute(scalar_counterpart(kernel), problem, options), kernel.name);
  } else if (!options.bias && options.epilogue == Epilogue::store) {
    expect_close_to_double(kernel, problem, c);
  }
}

std::vector<int64_t> tail_depths(WeightFormat format) {
  if (traits(format).k_alignment == kSuperGroup) return {256, 512, 1024};
  return {32, 64, 96, 160, 576, 1056};
}

TEST_P(GemmKernelTest, MatchesDoublePrecisionSums) {
  for (int64_t k : {40, 256, 600}) {
    const GemmProblem problem = random_problem(kernel().format, 3, 37, k, 11);
    expect_close_to_double(kernel(), problem, compute(kernel(), problem));
  }
}

TEST_P(GemmKernelTest, MatchesScalarOnShapesWithTails) {
  uint32_t seed = 100;
  for (int64_t k : tail_depths(kernel().format)) {
    for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 17, 33, 100}) {
      const int64_t n = (m * 37 + k) % 90 + 1;
      const GemmProblem problem = random_problem(kernel().format, m, n, k, ++seed);
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", seed " << seed);
      expect_correct(kernel(), problem, {}, compute(kernel(), problem));
      if (HasFatalFailure()) return;
    }
  }
}

// K that is no multiple of the format's group, as an odd model or a test may have it.
TEST_P(GemmKernelTest, PadsAnyDepth) {
  for (int64_t k : {1, 31, 33, 255, 257, 700}) {
    const GemmProblem problem = random_problem(kernel().format, 5, 50, k, 5);
    expect_correct(kernel(), problem, {}, compute(kernel(), problem));
  }
}

TEST_P(GemmKernelTest, MatchesScalarOnDeepAndWideShapes) {
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 96, 8192}, {2, 576, 1536}, {300, 33, 512}, {129, 64, 2304}}) {
    const GemmProblem problem = random_problem(kernel().format, m, n, k, 23);
    expect_correct(kernel(), problem, {}, compute(kernel(), problem));
    if (HasFatalFailure()) return;
  }
}

TEST_P(GemmKernelTest, NoRowsIsNoWork) {
  const GemmProblem problem = random_problem(kernel().format, 0, 40, 256, 3);
  EXPECT_TRUE(compute(kernel(), problem).empty());
}

TEST_P(GemmKernelTest, BiasAndAccumulation) {
  for (int64_t m : {1, 4, 37}) {
    const GemmProblem problem = random_problem(kernel().format, m, 53, 256, 17);
    const std::vector<float> plain = compute(kernel(), problem);
    for (bool bias : {false, true}) {
      for (Epilogue epilogue : {Epilogue::store, Epilogue::accumulate}) {
        std::vector<float> expected = plain;
        for (size_t i = 0; i < expected.size(); ++i) {
          if (bias) expected[i] += problem.bias[i % 53];
          if (epilogue == Epilogue::accumulate) expected[i] = 3.25f + expected[i];
        }
        expect_same_bits(compute(kernel(), problem, {bias, epilogue, 3.25f, {}}), expected,
                         kernel().name);
      }
    }
  }
}

// The property that makes batching, chunking and prefix reuse invisible in the output.
TEST_P(GemmKernelTest, RowsDoNotDependOnTheirCompany) {
  const GemmProblem all = random_problem(kernel().format, 77, 70, 512, 29);
  const std::vector<float> together = compute(kernel(), all);
  for (int64_t count : {1, 2, 5, 11, 32}) {
    for (int64_t begin = 0; begin < all.m; begin += count) {
      const int64_t m = std::min(count, all.m - begin);
      GemmProblem part = random_problem(kernel().format, m, 70, 512, 29);
      part.a.assign(all.a.begin() + begin * all.k, all.a.begin() + (begin + m) * all.k);
      expect_same_bits(compute(kernel(), part),
                       {together.begin() + begin * all.n, together.begin() + (begin + m) * all.n},
                       kernel().name);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(GemmKernelTest, PanelRangesMaySplitAnywhere) {
  std::mt19937 random(31);
  for (int64_t m : {1, 3, 40}) {
    const GemmProblem problem = random_problem(kernel().format, m, 16 * 19 - 5, 256, 41);
    const std::vector<float> whole = compute(kernel(), problem);
    for (int round = 0; round < 6; ++round) {
      std::set<int64_t> splits;
      for (int i = 0; i <= round; ++i) splits.insert(1 + static_cast<int64_t>(random() % 18));
      GemmOptions options;
      options.panel_splits.assign(splits.begin(), splits.end());
      expect_same_bits(compute(kernel(), problem, options), whole, kernel().name);
    }
  }
}

// Quants and activations at the ends of their ranges: 16-bit partial sums must not saturate.
TEST_P(GemmKernelTest, ExtremeQuantsDoNotSaturate) {
  const WeightFormatTraits t = traits(kernel().format);
  if (t.bits == 16) return;
  std::vector<int> quants = {t.min_quant, t.max_quant};
  if (t.codebook == Codebook::e2m1) quants.push_back(7);  // 6, the largest
  for (int quant : quants) {
    for (float sign : {-1.0f, 1.0f}) {
      for (int64_t m : {1, 20}) {
        GemmProblem problem = random_problem(kernel().format, m, 32, 512, 13);
        int fill = t.bits == 4 ? quant * 17 : quant;
        if (t.quant_kind == QuantKind::e4m3) fill = quant < 0 ? 0xfe : 0x7e;
        for (int64_t p = 0; p < problem.weight.num_panels(); ++p) {
          std::memset(problem.weight.panel(p), fill, static_cast<size_t>(512 * 16 * t.bits / 8));
        }
        for (float& x : problem.a) x = sign * 2.5f;
        expect_correct(kernel(), problem, {}, compute(kernel(), problem));
        expect_close_to_double(kernel(), problem, compute(kernel(), problem));
      }
    }
  }
}

// Every bit pattern of e4m3, among them NaN and the denormals. A NaN spoils its own channel only.
TEST_P(GemmKernelTest, EveryFp8PatternIsExact) {
  if (traits(kernel().format).quant_kind != QuantKind::e4m3) return;
  for (int64_t m : {1, 5, 40}) {
    GemmProblem problem = random_problem(kernel().format, m, 35, 256, 51);
    for (float& x : problem.a) x = 0.0f;
    // One scale for all of channel 3: bf16 kernels round the quotient of two.
    auto* scales =
        reinterpret_cast<float*>(problem.weight.panel(0) + problem.weight.layout().scales);
    scales[3] = scales[kTileN + 3];
    const auto set_weight = [&](int64_t n, int64_t k, int bits) {
      problem.weight.panel(n / kTileN)[byte_quant_offset(static_cast<int>(n % kTileN), k)] =
          static_cast<std::byte>(bits);
    };
    // Row i reads the weights at k = i alone; in channel 3 those are all the patterns.
    for (int first = 0; first < 256; first += static_cast<int>(m)) {
      for (int64_t i = 0; i < m && first + i < 256; ++i) {
        const int bits = static_cast<int>(first + i);
        const bool is_nan = (bits & 0x7f) == 0x7f;
        set_weight(3, 129 + i, is_nan ? 0 : bits);
        problem.a[static_cast<size_t>(i * problem.k + 129 + i)] = 1.0f;
      }
      const std::vector<float> c = compute(kernel(), problem);
      expect_correct(kernel(), problem, {}, c);
      for (int64_t i = 0; i < m && first + i < 256; ++i) {
        const int bits = static_cast<int>(first + i);
        if ((bits & 0x7f) == 0x7f) continue;
        const float scale = group_values(problem.weight, problem.weight.panel(0), 3, 129).scale;
        const float value = to_float(f8_e4m3_t{static_cast<uint8_t>(bits)});
        ASSERT_EQ(c[static_cast<size_t>(i * problem.n + 3)], value * scale) << bits;
      }
    }
    for (int bits : {0x7f, 0xff}) {
      GemmProblem poisoned = random_problem(kernel().format, m, 35, 256, 51);
      const std::vector<float> clean = compute(kernel(), poisoned);
      poisoned.weight.panel(1)[byte_quant_offset(4, 200)] = static_cast<std::byte>(bits);
      const std::vector<float> c = compute(kernel(), poisoned);
      for (size_t i = 0; i < c.size(); ++i) {
        if (i % 35 == 20) {
          ASSERT_TRUE(std::isnan(c[i])) << kernel().name;
        } else {
          ASSERT_EQ(c[i], clean[i]) << kernel().name;
        }
      }
    }
  }
}

// What checkpoints have: a scale per block of 128 x 128, or per channel, or 0 for what is 0; and
// negative ones.
TEST_P(GemmKernelTest, ScalesOfFp8MayBeSharedNegativeAndZero) {
  if (kernel().format != WeightFormat::fp8) return;
  using Scale = float (*)(int64_t channel, int64_t group);
  for (Scale scale : {Scale{[](int64_t, int64_t group) { return 0.01f * float(group * 7 % 5); }},
                      Scale{[](int64_t channel, int64_t) { return 0.003f * float(channel % 9); }},
                      Scale{[](int64_t, int64_t group) { return group % 2 == 0 ? -0.02f : 0.01f; }},
                      Scale{[](int64_t channel, int64_t group) {
                        return channel % 3 == 0 ? 0.0f : 0.01f * float(channel - 5 * group);
                      }}}) {
    for (int64_t m : {1, 20, 49}) {
      GemmProblem problem = random_problem(kernel().format, m, 43, 1300, 57);
      for (int64_t n = 0; n < problem.n; ++n) {
        auto* scales = reinterpret_cast<float*>(problem.weight.panel(n / kTileN) +
                                                problem.weight.layout().scales);
        for (int64_t group = 0; group * 128 < problem.k; ++group) {
          scales[group * kTileN + n % kTileN] = scale(n, group);
        }
      }
      const std::vector<float> c = compute(kernel(), problem);
      expect_correct(kernel(), problem, {}, c);
      expect_close_to_double(kernel(), problem, c);
    }
  }
}

// Sums that a float cannot hold exactly must still be exact integers before they are rounded once.
TEST_P(GemmKernelTest, DeepInt8SumsAreExact) {
  if (kernel().format != WeightFormat::int8) return;
  for (int quant : {-128, 127}) {
    GemmProblem problem = random_problem(kernel().format, 17, 16, 131072, 3);
    std::memset(problem.weight.panel(0), quant, static_cast<size_t>(problem.k * kTileN));
    for (float& x : problem.a) x = 3.0f;
    expect_correct(kernel(), problem, {}, compute(kernel(), problem));
  }
}

TEST_P(GemmKernelTest, ZeroTinyAndHugeRows) {
  GemmProblem problem = random_problem(kernel().format, 6, 40, 256, 19);
  for (int64_t k = 0; k < problem.k; ++k) {
    const auto i = static_cast<size_t>(k);
    const auto stride = static_cast<size_t>(problem.k);
    problem.a[i] = 0.0f;
    problem.a[stride + i] = -0.0f;
    problem.a[2 * stride + i] = 1e-38f * static_cast<float>(k % 7);  // subnormal
    problem.a[3 * stride + i] = k == 9 ? 1e30f : 1e-3f;              // one outlier
    problem.a[4 * stride + i] = k < 128 ? 1e-31f : 1.0f;
  }
  const std::vector<float> c = compute(kernel(), problem);
  expect_correct(kernel(), problem, {}, c);
  for (size_t i = 0; i < 80; ++i) EXPECT_EQ(c[i], 0.0f);
}

TEST_P(GemmKernelTest, NotANumberStaysInItsRow) {
  for (float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (int64_t m : {4, 40}) {
      GemmProblem problem = random_problem(kernel().format, m, 40, 256, 43);
      const std::vector<float> clean = compute(kernel(), problem);
      problem.a[static_cast<size_t>(2 * problem.k + 77)] = poison;
      const std::vector<float> c = compute(kernel(), problem);
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t n = 0; n < problem.n; ++n) {
          const auto i = static_cast<size_t>(row * problem.n + n);
          if (row == 2) {
            ASSERT_FALSE(std::isfinite(c[i])) << kernel().name;
          } else {
            ASSERT_EQ(c[i], clean[i]) << kernel().name;
          }
        }
      }
    }
  }
}

// All kernels of an activation format prepare the same bytes, in any split of the rows.
TEST_P(GemmKernelTest, PreparationMatchesScalar) {
  for (int64_t k : {1, 32, 100, 256, 577}) {
    GemmProblem problem = random_problem(kernel().format, 9, 16, k, 47);
    // Row 3 too small to quantize, row 4 with an infinity, row 5 with a NaN.
    for (int64_t i = 0; i < k; ++i) problem.a[static_cast<size_t>(3 * k + i)] *= 1e-33f;
    problem.a[static_cast<size_t>(4 * k + k / 2)] = -std::numeric_limits<float>::infinity();
    problem.a[static_cast<size_t>(5 * k)] = std::numeric_limits<float>::quiet_NaN();
    const Prepared whole = prepare(kernel(), problem);
    Prepared parts = prepare(kernel(), problem);
    std::memset(parts.memory.data(), 0xee, parts.memory.size());
    const Matrix<const float> a{problem.a.data(), problem.m, k, k};
    for (Range rows : {Range{0, 1}, Range{1, 7}, Range{7, 9}}) {
      kernel().prepare(a, rows, parts.view);
    }
    ASSERT_EQ(std::memcmp(whole.memory.data(), parts.memory.data(), whole.memory.size()), 0);
    if (kernel().activations == ActivationFormat::bf16) continue;
    const Prepared scalar = prepare(scalar_counterpart(kernel()), problem);
    ASSERT_EQ(std::memcmp(whole.memory.data(), scalar.memory.data(), whole.memory.size()), 0)
        << kernel().name << " k=" << k;
  }
}

TEST(GemmSelection, EveryFeatureSetGetsASupportedKernel) {
  // Each feature on or off, whether or not such a processor exists.
  constexpr bool CpuFeatures::*kBits[] = {
      &CpuFeatures::avx2,        &CpuFeatures::avx_vnni,    &CpuFeatures::avx512,
      &CpuFeatures::avx512_vnni, &CpuFeatures::avx512_bf16, &CpuFeatures::avx512_vbmi,
      &CpuFeatures::amx_tile,    &CpuFeatures::amx_int8,    &CpuFeatures::amx_bf16};
  for (unsigned set = 0; set < (1u << std::size(kBits)); ++set) {
    CpuFeatures features;
    for (size_t i = 0; i < std::size(kBits); ++i) features.*kBits[i] = (set >> i) & 1u;
    for (WeightFormat format : kAllWeightFormats) {
      for (auto precision : {ActivationPrecision::bf16, ActivationPrecision::f32}) {
        const GemmKernel& kernel = select_gemm(format, precision, features);
        ASSERT_EQ(kernel.format, format);
        ASSERT_TRUE(kernel.supported(features)) << kernel.name;
        ASSERT_FALSE(kernel.for_prompts) << kernel.name;
        const GemmKernel& prefill = select_prefill_gemm(format, precision, features);
        ASSERT_EQ(prefill.format, format);
        ASSERT_TRUE(prefill.supported(features)) << prefill.name;
        if (precision == ActivationPrecision::f32) {
          ASSERT_EQ(&prefill, &kernel);
        }
        if (precision == ActivationPrecision::f32) {
          ASSERT_EQ(kernel.activations, ActivationFormat::f32);
        } else if (format == WeightFormat::int8) {
          ASSERT_EQ(kernel.activations, ActivationFormat::int8);
        } else if (traits(format).quant_kind == QuantKind::integer &&
                   format != WeightFormat::bf16) {
          ASSERT_EQ(kernel.activations, ActivationFormat::q8);
        }
      }
    }
  }
}

TEST(GemmSelection, LowerLevelsChooseLowerKernels) {
  CpuFeatures all;
  for (bool CpuFeatures::*bit :
       {&CpuFeatures::avx2, &CpuFeatures::avx512, &CpuFeatures::avx512_vnni,
        &CpuFeatures::avx512_bf16, &CpuFeatures::amx_tile, &CpuFeatures::amx_int8,
        &CpuFeatures::amx_bf16}) {
    all.*bit = true;
  }
  for (WeightFormat format : kAllWeightFormats) {
    for (Isa limit : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
      for (auto precision : {ActivationPrecision::bf16, ActivationPrecision::f32}) {
        const GemmKernel& kernel = select_gemm(format, precision, all.limited_to(limit));
        EXPECT_LE(kernel.isa, limit) << kernel.name;
        EXPECT_LE(select_prefill_gemm(format, precision, all.limited_to(limit)).isa, limit);
      }
    }
    EXPECT_EQ(select_gemm(format, ActivationPrecision::bf16, CpuFeatures{}).isa, Isa::scalar);
  }
}

// The variable that lowers the instruction set reaches the choice of kernels.
TEST(GemmSelection, EnvironmentLowersTheLevel) {
  const char* outer = std::getenv("TILEWRIGHT_ISA");
  const std::string saved = outer == nullptr ? "" : outer;
  for (Isa limit : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    setenv("TILEWRIGHT_ISA", to_string(limit), 1);
    const auto features = usable_cpu_features();
    if (!features) continue;  // this machine has less
    for (WeightFormat format : kAllWeightFormats) {
      EXPECT_LE(select_gemm(format, ActivationPrecision::bf16, *features).isa, limit);
    }
    if (limit <= Isa::avx2) {
      EXPECT_EQ(select_gemm(WeightFormat::q4_0, ActivationPrecision::bf16, *features).isa, limit);
    }
  }
  setenv("TILEWRIGHT_ISA", saved.c_str(), 1);
}

TEST(GemmSelection, NamesAreUnique) {
  std::set<std::string> names;
  for (const GemmKernel& kernel : gemm_kernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
  }
}

TEST(GemmValidation, NamesWhatDoesNotFit) {
  const GemmProblem problem = random_problem(WeightFormat::q8_0, 4, 40, 256, 3);
  const GemmKernel& kernel = select_gemm(WeightFormat::q8_0, ActivationPrecision::bf16, {});
  const Prepared prepared = prepare(kernel, problem);
  std::vector<float> c(4 * 40);
  GemmArguments good;
  good.weight = &problem.weight;
  good.a = prepared.view;
  good.c = dense_matrix(c.data(), 4, 40);
  ASSERT_TRUE(validate(kernel, good).has_value());

  const auto expect_error = [&](const char* part, auto spoil) {
    GemmArguments bad = good;
    spoil(bad);
    const Status status = validate(kernel, bad);
    ASSERT_FALSE(status.has_value()) << part;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find(kernel.name), std::string::npos);
  };
  const GemmProblem other = random_problem(WeightFormat::q4_0, 4, 40, 256, 3);
  const PackedWeight empty;
  expect_error("no weight", [](GemmArguments& a) { a.weight = nullptr; });
  expect_error("no weight", [&](GemmArguments& a) { a.weight = &empty; });
  expect_error("weight is q4_0", [&](GemmArguments& a) { a.weight = &other.weight; });
  expect_error("activations are f32", [](GemmArguments& a) { a.a.format = ActivationFormat::f32; });
  expect_error("[4, 224]", [](GemmArguments& a) { a.a.k = 224; });
  expect_error("[-1, 256]", [](GemmArguments& a) { a.a.m = -1; });
  expect_error("should be [4, 40]", [](GemmArguments& a) { a.c.rows = 3; });
  expect_error("should be [4, 40]", [](GemmArguments& a) { a.c.cols = 41; });
  expect_error("row stride 39", [](GemmArguments& a) { a.c.row_stride = 39; });
  expect_error("output is null", [](GemmArguments& a) { a.c.data = nullptr; });
  expect_error("activations is null", [](GemmArguments& a) { a.a.values = nullptr; });
  expect_error("64-byte aligned", [](GemmArguments& a) { a.a.values += 4; });
  expect_error("row stride 256", [](GemmArguments& a) { a.a.row_stride = 256; });
  expect_error("laid out", [](GemmArguments& a) { a.a.groups = nullptr; });
}

}  // namespace
}  // namespace tw::kernels
