#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/dtype.h"
#include "kernels/gemm/packed_weight.h"
#include "kernels/gemm/unpack.h"

namespace tw::kernels {
namespace {

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

TEST(PackedWeight, LayoutCountsBytesOfEveryPart) {
  const PanelLayout bf16 = panel_layout(WeightFormat::bf16, 64);
  EXPECT_EQ(bf16.size, 64 * 16 * 2);

  const PanelLayout q4_1 = panel_layout(WeightFormat::q4_1, 96);
  EXPECT_EQ(q4_1.scales, 3 * 256);
  EXPECT_EQ(q4_1.minimums, q4_1.scales + 128);  // 3 groups x 32 bytes, rounded up to 64
  EXPECT_EQ(q4_1.size, q4_1.minimums + 128);

  const PanelLayout q6 = panel_layout(WeightFormat::q8_k16, 512);
  EXPECT_EQ(q6.scales, 512 * 16);
  EXPECT_EQ(q6.super_scales, q6.scales + 32 * 16);
  EXPECT_EQ(q6.size, q6.super_scales + 64);
  EXPECT_EQ(q6.minimums, 0);

  const PanelLayout int8 = panel_layout(WeightFormat::int8, 192);
  EXPECT_EQ(int8.scales, 192 * 16);
  EXPECT_EQ(int8.size, int8.scales + 64);

  const PanelLayout fp8 = panel_layout(WeightFormat::fp8, 384);
  EXPECT_EQ(fp8.scales, 384 * 16);
  EXPECT_EQ(fp8.size, fp8.scales + 3 * 64);
}

TEST(PackedWeight, AllocatePadsAndZeroes) {
  const auto weight = PackedWeight::allocate(WeightFormat::q4_k, 17, 300);
  ASSERT_TRUE(weight.has_value());
  EXPECT_EQ(weight->num_panels(), 2);
  EXPECT_EQ(weight->padded_k(), 512);
  EXPECT_EQ(weight->size_bytes(), static_cast<size_t>(2 * weight->layout().size));
  for (size_t i = 0; i < weight->size_bytes(); ++i) {
    ASSERT_EQ(weight->panel(0)[i], std::byte{0}) << i;
  }
}

TEST(PackedWeight, AllocateRefusesBadShapes) {
  for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 32}, {32, 0}, {-1, 32}, {32, -5}, {int64_t{1} << 40, 32}, {32, int64_t{1} << 62}}) {
    const auto weight = PackedWeight::allocate(WeightFormat::bf16, n, k);
    ASSERT_FALSE(weight.has_value()) << n << " x " << k;
    EXPECT_EQ(weight.error().code, ErrorCode::invalid_argument);
  }
  const auto huge = PackedWeight::allocate(WeightFormat::bf16, int64_t{1} << 30, int64_t{1} << 30);
  ASSERT_FALSE(huge.has_value());
  EXPECT_NE(huge.error().message.find("bf16"), std::string::npos);
  EXPECT_TRUE(PackedWeight::allocate(WeightFormat::int8, 1, kMaxInt8Depth).has_value());
  const auto deep = PackedWeight::allocate(WeightFormat::int8, 1, kMaxInt8Depth + 1);
  ASSERT_FALSE(deep.has_value());
  EXPECT_NE(deep.error().message.find("132104"), std::string::npos) << deep.error().message;
}

// The documented example values, by hand: the offsets are a contract with the packers.
TEST(PackedWeight, UnpackReadsTheDocumentedPlaces) {
  auto weight = PackedWeight::allocate(WeightFormat::q4_0, 32, 64);
  ASSERT_TRUE(weight.has_value());
  std::byte* panel = weight->panel(1);
  // Channel 19 = panel 1, lane 3. k = 32 + 4 * 2 + 1 = 41 low nibble; k = 57 the high one.
  panel[256 + 2 * 64 + 3 * 4 + 1] = std::byte{0xA5};
  put(panel + weight->layout().scales + (1 * 16 + 3) * 2, to_f16(0.5f));
  std::vector<float> row(64);
  unpack_row(*weight, 19, row.data());
  EXPECT_EQ(row[41], (5 - 8) * 0.5f);
  EXPECT_EQ(row[57], (10 - 8) * 0.5f);
  EXPECT_EQ(row[33], -8 * 0.5f);
  EXPECT_EQ(row[0], 0.0f);  // group 0 has scale 0

  auto nested = PackedWeight::allocate(WeightFormat::q8_k16, 16, 512);
  ASSERT_TRUE(nested.has_value());
  panel = nested->panel(0);
  // k = 300: group 18 of 16, super-group 1; lane 15.
  panel[300 / 4 * 64 + 15 * 4] = std::byte{63};
  panel[nested->layout().scales + 18 * 16 + 15] = std::byte{0xFE};  // -2
  put(panel + nested->layout().super_scales + (16 + 15) * 2, to_f16(0.25f));
  row.resize(512);
  unpack_row(*nested, 15, row.data());
  EXPECT_EQ(row[300], -0.5f * (63 - 32));
  EXPECT_EQ(row[301], -0.5f * (0 - 32));
}

TEST(PackedWeight, UnpackReadsZeroPointsOfGroups) {
  auto weight = PackedWeight::allocate(WeightFormat::q4_z, 32, 64);
  ASSERT_TRUE(weight.has_value());
  std::byte* panel = weight->panel(1);
  // Channel 19 = panel 1, lane 3; group 1; k = 41 in the low nibble, k = 57 in the high one.
  panel[256 + 2 * 64 + 3 * 4 + 1] = std::byte{0xA5};
  put(panel + weight->layout().scales + (1 * 16 + 3) * 2, to_f16(0.5f));
  panel[weight->layout().zero_points + 1 * 16 + 3] = std::byte{16};
  std::vector<float> row(64);
  unpack_row(*weight, 19, row.data());
  EXPECT_EQ(row[41], (5 - 16) * 0.5f);
  EXPECT_EQ(row[57], (10 - 16) * 0.5f);
}

TEST(PackedWeight, UnpackReadsCodebooksAndOutputScales) {
  constexpr float kE2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  auto weight = PackedWeight::allocate(WeightFormat::fp4_16, 16, 32);
  ASSERT_TRUE(weight.has_value());
  std::byte* panel = weight->panel(0);
  for (int k = 0; k < 16; ++k) {
    panel[nibble_quant_offset(5, k)] = static_cast<std::byte>(k | (15 - k) << 4);
  }
  put(panel + weight->layout().scales + 5 * 2, to_f16(1.0f));
  put(panel + weight->layout().scales + (16 + 5) * 2, to_f16(-4.0f));
  std::vector<float> output_scales(16, 1.0f);
  output_scales[5] = 0.5f;
  weight->set_output_scales(output_scales);
  std::vector<float> row(32);
  unpack_row(*weight, 5, row.data());
  for (size_t k = 0; k < 16; ++k) {
    EXPECT_EQ(row[k], kE2m1[k]) << k;
    EXPECT_EQ(row[16 + k], -4.0f * kE2m1[15 - k]) << k;
  }
}

TEST(PackedWeight, RandomWeightsKeepTheContract) {
  for (WeightFormat format : kAllWeightFormats) {
    const WeightFormatTraits t = traits(format);
    const auto weight = random_weight(format, 21, 300, 7);
    ASSERT_TRUE(weight.has_value());
    std::vector<float> row(300);
    double sum_of_squares = 0;
    for (int64_t n = 0; n < 21; ++n) {
      unpack_row(*weight, n, row.data());
      for (float w : row) {
        ASSERT_TRUE(std::isfinite(w));
        ASSERT_LE(std::abs(w), 8.0f) << t.name;
        sum_of_squares += double{w} * w;
      }
      if (format == WeightFormat::bf16) continue;
      for (int64_t k = 0; k < 300; ++k) {
        const int quant =
            stored_quant(*weight, weight->panel(n / kTileN), static_cast<int>(n % kTileN), k);
        if (t.quant_kind == QuantKind::e4m3) {
          ASSERT_NE(quant & 0x7f, 0x7f);
          continue;
        }
        ASSERT_GE(quant, t.min_quant);
        ASSERT_LE(quant, t.max_quant);
      }
    }
    EXPECT_GT(sum_of_squares / (21 * 300), 0.05) << t.name;
  }
}

}  // namespace
}  // namespace tw::kernels
