// The same tiny model in bf16 and in every 4-bit and 8-bit format
// (tools/proxy/quantized_models.py): weights that are equal give equal logits.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "models/forward_runner.h"
#include "models/logit_error.h"
#include "models/model.h"
#include "models/registry.h"
#include "models/test_name.h"

namespace tw {
namespace {

using kernels::ActivationPrecision;
using testing_support::ForwardRunner;
using testing_support::largest_magnitude;
using testing_support::logit_error;

class QuantizedModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const std::filesystem::path& each : {folder(""), folder(std::string("-") + GetParam())}) {
      if (std::filesystem::exists(each)) continue;
      GTEST_SKIP() << each << " is missing; run tools/proxy/make_proxy.py --tests";
    }
    tokens_.resize(40);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<int32_t>((i * i * 37 + 11) % 376);
    }
  }

  static std::filesystem::path folder(const std::string& kind) {
    return std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / ("tiny-llama-4bit" + kind);
  }

  std::vector<float> logits(const std::string& kind, ActivationPrecision precision,
                            const CpuFeatures& features) {
    auto checkpoint = Checkpoint::open(folder(kind));
    EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().message);
    if (!checkpoint) return {};
    auto model = load_model(WeightLoader(**checkpoint, team_, {features, precision}));
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    if (!model) return {};
    ForwardRunner runner(**model, 64, 16);
    return runner.run(tokens_);
  }

  ThreadTeam team_{2};
  std::vector<int32_t> tokens_;
};

class FourBitModel : public QuantizedModel {};
class EightBitModel : public QuantizedModel {};

// With fp32 activations both paths add the same products in the same order, unless act-order has
// changed the order: then only roundings differ.
TEST_P(FourBitModel, ComputesWhatTheDequantizedModelDoes) {
  const CpuFeatures features = *usable_cpu_features();
  const std::vector<float> expected = logits("", ActivationPrecision::f32, features);
  const std::vector<float> actual =
      logits(std::string("-") + GetParam(), ActivationPrecision::f32, features);
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_FALSE(expected.empty());
  if (std::string_view(GetParam()) == "gptq-act-order") {
    EXPECT_LT(logit_error(actual, expected, largest_magnitude(expected)).relative, 1e-3);
    return;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }
}

// With int8 activations the sums of a group are exact and scales are powers of two: the formats
// differ by roundings of fp32 alone, and by bf16 keys and values that these may tip over. Act-order
// has other groups of activations.
TEST_P(FourBitModel, FormatsAgreeOnInt8Activations) {
  if (std::string_view(GetParam()) == "gptq-act-order") GTEST_SKIP() << "groups differ";
  const CpuFeatures features = *usable_cpu_features();
  const std::vector<float> expected = logits("-int4", ActivationPrecision::bf16, features);
  const std::vector<float> actual =
      logits(std::string("-") + GetParam(), ActivationPrecision::bf16, features);
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_LT(logit_error(actual, expected, largest_magnitude(expected)).relative, 1e-3);
}

// int8 weights are expanded to the numbers that bf16 holds; fp8 sums groups of 128 on their own.
TEST_P(EightBitModel, ComputesWhatTheDequantizedModelDoes) {
  const CpuFeatures features = *usable_cpu_features();
  const std::vector<float> expected = logits("", ActivationPrecision::f32, features);
  const std::vector<float> actual =
      logits(std::string("-") + GetParam(), ActivationPrecision::f32, features);
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_FALSE(expected.empty());
  if (std::string_view(GetParam()).starts_with("fp8")) {
    EXPECT_LT(logit_error(actual, expected, largest_magnitude(expected)).relative, 1e-3);
    return;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }
}

// The activations that serving uses: bf16 for fp8, int8 per token for int8, on every instruction
// set of this machine.
TEST_P(EightBitModel, RoundedActivationsStayClose) {
  const std::vector<float> expected = logits("", ActivationPrecision::f32, *usable_cpu_features());
  const bool is_fp8 = std::string_view(GetParam()).starts_with("fp8");
  for (const Isa limit : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    const CpuFeatures features = usable_cpu_features()->limited_to(limit);
    const std::vector<float> actual =
        logits(std::string("-") + GetParam(), ActivationPrecision::bf16, features);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_LT(logit_error(actual, expected, largest_magnitude(expected)).relative,
              is_fp8 ? 0.02 : 0.05)
        << to_string(limit);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EightBitModel,
                         ::testing::Values("fp8-block", "fp8-channel", "fp8-tensor", "int8",
                                           "w8a8-int8"),
                         testing_support::NamedByParameter());

INSTANTIATE_TEST_SUITE_P(Kinds, FourBitModel,
                         ::testing::Values("awq", "gptq", "gptq-act-order", "int4", "nvfp4",
                                           "nvfp4-divided", "mxfp4"),
                         testing_support::NamedByParameter());

}  // namespace
}  // namespace tw
