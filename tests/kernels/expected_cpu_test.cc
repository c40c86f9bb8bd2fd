// Does this processor get the kernels that it should?
//
// TILEWRIGHT_EXPECT_KERNELS says which: `key=kernel` pairs with spaces between. A key is a weight
// format, `group` for all formats of groups that have no key of their own, any of these with
// `prefill.` before it (the rows of prompts), or `vector`, whose value is the instruction set of
// everything that is no GEMM. `{}` in a kernel's name stands for the format. tools/xeon/test.sh
// sets it for each processor that it emulates.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "core/cpu.h"
#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/kernel_table.h"
#include "kernels/moe/moe_kernels.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/sampling/logits.h"

namespace tw::kernels {
namespace {

using Expectations = std::map<std::string, std::string>;

Expectations parse(const char* text) {
  Expectations expectations;
  std::istringstream stream(text);
  for (std::string pair; stream >> pair;) {
    const size_t equals = pair.find('=');
    EXPECT_NE(equals, std::string::npos) << pair;
    expectations[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return expectations;
}

std::optional<std::string> expected_kernel(const Expectations& expectations,
                                           const std::string& prefix, WeightFormat format) {
  const WeightFormatTraits t = traits(format);
  const bool is_group = t.scale_kind == ScaleKind::f16 || t.scale_kind == ScaleKind::nested;
  auto found = expectations.find(prefix + t.name);
  if (found == expectations.end() && is_group) found = expectations.find(prefix + "group");
  if (found == expectations.end()) return std::nullopt;
  std::string name = found->second;
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, t.name);
  return name;
}

class ExpectedCpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* text = std::getenv("TILEWRIGHT_EXPECT_KERNELS");
    if (text == nullptr) GTEST_SKIP() << "TILEWRIGHT_EXPECT_KERNELS is not set";
    expectations_ = parse(text);
    const auto features = usable_cpu_features();
    ASSERT_TRUE(features.has_value());
    features_ = *features;
  }

  template <typename Functions>
  void expect_vector_row(std::span<const KernelRow<Functions>> table) {
    const KernelRow<Functions>& row = select_row(table, features_);
    EXPECT_EQ(to_string(row.isa), expectations_["vector"]) << row.name;
  }

  Expectations expectations_;
  CpuFeatures features_;
};

TEST_F(ExpectedCpuTest, GemmKernels) {
  for (WeightFormat format : kAllWeightFormats) {
    const auto expected = expected_kernel(expectations_, "", format);
    ASSERT_TRUE(expected) << "no expectation for " << traits(format).name;
    EXPECT_EQ(select_gemm(format, ActivationPrecision::bf16, features_).name, *expected);
    // Without an expectation of their own, the rows of prompts take the same kernel.
    const auto prefill = expected_kernel(expectations_, "prefill.", format);
    EXPECT_EQ(select_prefill_gemm(format, ActivationPrecision::bf16, features_).name,
              prefill.value_or(*expected));
  }
}

TEST_F(ExpectedCpuTest, VectorKernels) {
  expect_vector_row(activation_kernels());
  for (const KvType type : {KvType::bf16, KvType::fp8_e4m3}) {
    expect_vector_row(attention_kernels(type));
    expect_vector_row(latent_attention_kernels(type));
  }
  expect_vector_row(embedding_kernels());
  expect_vector_row(logits_kernels());
  expect_vector_row(moe_kernels());
  expect_vector_row(norm_kernels());
  expect_vector_row(rope_kernels());
}

}  // namespace
}  // namespace tw::kernels
