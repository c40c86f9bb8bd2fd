#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tw {
namespace {

TEST(Bf16, EveryFiniteValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16_t value{static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(wide))));
    } else {
      EXPECT_EQ(to_bf16(wide).bits, value.bits);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, to_bf16(1.0f).bits);              // tie, to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 2 * 0x1p-7f);     // tie, to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f + 0x1p-20f)), 1.0f + 0x1p-7f);  // above the tie
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(F16, EveryFiniteValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16_t value{static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(wide))));
    } else {
      EXPECT_EQ(to_f16(wide).bits, value.bits) << bits;
    }
  }
}

TEST(F16, KnownValuesAndRounding) {
  EXPECT_EQ(to_float(f16_t{0x3c00}), 1.0f);
  EXPECT_EQ(to_float(f16_t{0x0001}), 0x1p-24f);  // smallest subnormal
  EXPECT_EQ(to_float(f16_t{0x7bff}), 65504.0f);
  EXPECT_EQ(to_f16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);         // overflow to infinity
  EXPECT_EQ(to_f16(1.0f + 0x1p-11f).bits, 0x3c00);  // tie, to even
  EXPECT_EQ(to_f16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);
  EXPECT_EQ(to_f16(-0.0f).bits, 0x8000);
}

TEST(Dtype, EveryE4m3PatternFollowsItsDefinition) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = to_float(f8_e4m3_t{static_cast<uint8_t>(bits)});
    const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
    EXPECT_EQ(std::signbit(value), bits >= 128);
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
    } else if (exponent == 0) {
      EXPECT_EQ(std::abs(value), std::ldexp(static_cast<float>(mantissa), -9));
    } else {
      EXPECT_EQ(std::abs(value), std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
    }
  }
}

}  // namespace
}  // namespace tw
