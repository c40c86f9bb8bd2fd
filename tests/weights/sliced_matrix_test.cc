// Parts of matrices hold exactly the numbers that the whole has there: in every compute format, at
// every border where it may be divided.
#include "weights/sliced_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/gemm/unpack.h"
#include "weights/packing.h"

namespace tw {
namespace {

using kernels::PackedWeight;
using kernels::ScaleKind;
using kernels::WeightFormat;
using kernels::WeightFormatTraits;

// Random channels of any format, the same for the same row at every call.
class RandomChannels final : public StoredMatrix {
 public:
  RandomChannels(WeightFormat format, int64_t rows, int64_t columns)
      : StoredMatrix({&tensor_}, format, rows, columns) {
    tensor_.name = "random";
  }

  bool has_output_scales() const override { return true; }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    std::mt19937 random(static_cast<uint32_t>(row));
    const WeightFormatTraits t = kernels::traits(format());
    const auto f16 = [&] { return to_f16(0.125f * static_cast<float>(1 + random() % 100)); };
    const auto bytes = [](const f16_t& value) {
      return reinterpret_cast<const std::byte*>(&value.bits);
    };
    *channel.output_scale = static_cast<float>(1 + row);
    for (int64_t k = 0; k < columns(); ++k) {
      if (t.bits == 16) channel.set_bf16(k, to_bf16(static_cast<float>(random() % 100)).bits);
      if (t.bits == 8 && t.quant_kind == kernels::QuantKind::e4m3) {
        channel.set_quant8(k, static_cast<int>(random() % 120));
      } else if (t.bits == 8) {
        const auto range = static_cast<unsigned>(t.max_quant - t.min_quant + 1);
        channel.set_quant8(k, t.min_quant + static_cast<int>(random() % range));
      }
      if (t.bits == 4 && k % 32 < 16) channel.set_nibbles(k, static_cast<std::byte>(random()));
    }
    if (t.scale_kind == ScaleKind::none) return;
    const int64_t groups = t.group_size == 0 ? 1 : (columns() + t.group_size - 1) / t.group_size;
    for (int64_t group = 0; group < groups; ++group) {
      const f16_t scale = f16(), minimum = f16();
      if (t.scale_kind == ScaleKind::f32) {
        channel.set_scale(group, static_cast<float>(1 + random() % 100));
      } else if (t.scale_kind == ScaleKind::f16) {
        channel.set_scale(group, scale);
        if (t.has_minimum) channel.set_minimum(group, bytes(minimum));
      } else {
        channel.set_multiplier(group, static_cast<int>(random() % 64));
        if (t.has_minimum) channel.set_minimum_multiplier(group, static_cast<int>(random() % 64));
      }
      if (t.has_zero_points) channel.set_zero_point(group, static_cast<int>(random() % 17));
    }
    if (t.scale_kind != ScaleKind::nested) return;
    for (int64_t super = 0; super < columns() / kernels::kSuperGroup; ++super) {
      const f16_t scale = f16(), minimum = f16();
      channel.set_super_scale(super, bytes(scale));
      if (t.has_minimum) channel.set_negated_super_minimum(super, bytes(minimum));
    }
  }

 private:
  StoredTensor tensor_;
};

PackedWeight pack_one(const StoredMatrix& matrix) {
  ThreadTeam team(2);
  const StoredMatrix* const matrices[] = {&matrix};
  auto weight = pack(matrices, team);
  EXPECT_TRUE(weight) << (weight ? "" : weight.error().message);
  return weight ? std::move(*weight) : PackedWeight();
}

std::vector<float> row_of(const PackedWeight& weight, int64_t row) {
  std::vector<float> values(static_cast<size_t>(weight.k()));
  kernels::unpack_row(weight, row, values.data());
  return values;
}

class SlicedFormats : public ::testing::TestWithParam<WeightFormat> {
 protected:
  static constexpr int64_t kRows = 21;

  // The tail is shorter than a block where the format allows it.
  int64_t columns() const {
    const auto t = kernels::traits(GetParam());
    return t.scale_kind == ScaleKind::nested ? 768 : 3 * t.k_alignment + (t.bits == 16 ? 7 : 0);
  }
  std::unique_ptr<StoredMatrix> matrix() const {
    return std::make_unique<RandomChannels>(GetParam(), kRows, columns());
  }
};

TEST_P(SlicedFormats, ColumnsAreThoseOfTheWhole) {
  const PackedWeight whole = pack_one(*matrix());
  const int64_t block = SlicedColumns::column_block(GetParam());
  for (int64_t begin = 0; begin < columns(); begin += block) {
    for (int64_t end = begin + block; end < columns() + block; end += block) {
      const Range range = {begin, std::min(end, columns())};
      const PackedWeight part = pack_one(SlicedColumns(matrix(), range));
      ASSERT_EQ(part.n(), kRows);
      ASSERT_EQ(part.k(), range.size());
      for (int64_t row = 0; row < kRows; ++row) {
        const std::vector<float> expected = row_of(whole, row);
        const std::vector<float> actual = row_of(part, row);
        for (size_t k = 0; k < actual.size(); ++k) {
          ASSERT_EQ(actual[k], expected[static_cast<size_t>(begin) + k])
              << begin << " to " << range.end << ", row " << row << ", column " << k;
        }
      }
      // Padding is zero: it meets whatever lies behind the activations.
      if (GetParam() != WeightFormat::bf16) continue;
      for (int64_t k = part.k(); k < part.padded_k(); ++k) {
        uint16_t bits = 0;
        std::memcpy(&bits, part.panel(0) + kernels::bf16_offset(3, k), sizeof(bits));
        ASSERT_EQ(bits, 0) << begin << " to " << range.end << ", column " << k;
      }
    }
  }
}

TEST_P(SlicedFormats, RowsAreThoseOfTheWhole) {
  const PackedWeight whole = pack_one(*matrix());
  const PackedWeight part = pack_one(SlicedRows(matrix(), {{20, 21}, {2, 2}, {3, 19}, {0, 2}}));
  const auto expected_row = [](int64_t row) {
    return row == 0 ? 20 : row < 17 ? row + 2 : row - 17;
  };
  ASSERT_EQ(part.n(), 19);
  for (int64_t row = 0; row < part.n(); ++row) {
    EXPECT_EQ(row_of(part, row), row_of(whole, expected_row(row))) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SlicedFormats, ::testing::ValuesIn(kernels::kAllWeightFormats),
                         [](const auto& test) {
                           return std::string(kernels::traits(test.param).name);
                         });

}  // namespace
}  // namespace tw
