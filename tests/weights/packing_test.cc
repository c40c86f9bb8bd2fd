#include "weights/packing.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <random>

#include "core/dtype.h"
#include "kernels/gemm/unpack.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

struct GgmlType {
  uint32_t number;
  StorageType type;
};
constexpr GgmlType kQuantizedTypes[] = {
    {8, StorageType::q8_0},  {2, StorageType::q4_0},  {3, StorageType::q4_1},
    {6, StorageType::q5_0},  {7, StorageType::q5_1},  {12, StorageType::q4_k},
    {13, StorageType::q5_k}, {14, StorageType::q6_k}, {39, StorageType::mxfp4},
};

TEST(Dequantize, EqualsTheReferenceLibraryBitForBit) {
  std::ifstream file(std::string(TW_SOURCE_DIR) + "/tests/weights/golden/quants.bin",
                     std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(bytes.empty());
  size_t position = 0;
  const auto read = [&](void* to, size_t size) {
    ASSERT_LE(position + size, bytes.size());
    std::memcpy(to, bytes.data() + position, size);
    position += size;
  };
  for (const GgmlType& expected_type : kQuantizedTypes) {
    uint32_t number = 0, num_blocks = 0;
    read(&number, 4);
    read(&num_blocks, 4);
    ASSERT_EQ(number, expected_type.number);
    const StorageTypeTraits& t = traits(expected_type.type);
    std::vector<std::byte> blocks(num_blocks * static_cast<size_t>(t.block_bytes));
    read(blocks.data(), blocks.size());
    std::vector<float> expected(num_blocks * static_cast<size_t>(t.block_elements));
    read(expected.data(), expected.size() * sizeof(float));
    std::vector<float> actual(expected.size());
    dequantize(expected_type.type, blocks.data(), static_cast<int64_t>(actual.size()),
               actual.data());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
          << t.name << " element " << i << ": " << actual[i] << " and " << expected[i];
    }
  }
  EXPECT_EQ(position, bytes.size());
}

// A matrix of random blocks; scales are made finite.
struct RandomMatrix {
  StoredTensor tensor;
  std::vector<std::byte> bytes;

  RandomMatrix(StorageType type, int64_t rows, int64_t columns, uint32_t seed) {
    const StorageTypeTraits& t = traits(type);
    bytes.resize(static_cast<size_t>(rows * columns / t.block_elements * t.block_bytes));
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto set_f16 = [&](size_t offset) {
      const f16_t value = to_f16(static_cast<float>(random() % 4000) / 1000.0f - 2.0f);
      std::memcpy(bytes.data() + offset, &value, 2);
    };
    for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(t.block_bytes)) {
      if (type == StorageType::q6_k) set_f16(block + 208);
      if (type == StorageType::mxfp4) {
        // Within the range that a channel's scales may have.
        bytes[block] = static_cast<std::byte>(90 + random() % 28);
      } else if (t.block_elements > 1 && type != StorageType::q6_k) {
        set_f16(block);
      }
      const bool has_minimum = type == StorageType::q4_1 || type == StorageType::q5_1 ||
                               type == StorageType::q4_k || type == StorageType::q5_k;
      if (has_minimum) set_f16(block + 2);
      if (type == StorageType::f32) {
        const float value = static_cast<float>(random() % 4000) / 1000.0f - 2.0f;
        std::memcpy(bytes.data() + block, &value, 4);
      }
      if (type == StorageType::f16) set_f16(block);
      if (type == StorageType::bf16) {
        const bf16_t value = to_bf16(static_cast<float>(random() % 4000) / 1000.0f - 2.0f);
        std::memcpy(bytes.data() + block, &value, 2);
      }
    }
    tensor.name = t.name;
    tensor.type = type;
    tensor.shape = {rows, columns};
    tensor.data = bytes;
  }

  std::vector<float> row(int64_t index) const {
    const StorageTypeTraits& t = traits(tensor.type);
    const int64_t columns = tensor.shape[1];
    std::vector<float> values(static_cast<size_t>(columns));
    dequantize(tensor.type,
               bytes.data() + tensor.row_order.stored_row(index, tensor.shape[0]) * columns /
                                  t.block_elements * t.block_bytes,
               columns, values.data());
    if (t.block_elements == 1) {
      for (float& value : values) value = to_float(to_bf16(value));
    }
    return values;
  }
};

void expect_rows(const kernels::PackedWeight& weight, int64_t first, const RandomMatrix& matrix) {
  std::vector<float> actual(static_cast<size_t>(weight.k()));
  for (int64_t n = 0; n < matrix.tensor.shape[0]; ++n) {
    kernels::unpack_row(weight, first + n, actual.data());
    const std::vector<float> expected = matrix.row(n);
    for (size_t k = 0; k < actual.size(); ++k) {
      // Equal as numbers: a zero may lose its sign.
      ASSERT_EQ(actual[k], expected[k]) << matrix.tensor.name << " [" << n << ", " << k << "]";
    }
  }
}

Expected<kernels::PackedWeight> pack_plain(std::span<const StoredTensor* const> tensors,
                                           ThreadTeam& team) {
  std::vector<std::unique_ptr<StoredMatrix>> owned;
  std::vector<const StoredMatrix*> matrices;
  for (const StoredTensor* tensor : tensors) {
    auto matrix = make_plain_matrix(*tensor);
    if (!matrix) return forward_error(matrix);
    matrices.push_back(matrix->get());
    owned.push_back(std::move(*matrix));
  }
  return pack(matrices, team);
}

class PackingTest : public ::testing::TestWithParam<StorageType> {};

TEST_P(PackingTest, PackedWeightsAreExactlyTheStoredOnes) {
  const int64_t columns = traits(GetParam()).block_elements == 256 ? 512 : 96;
  for (int threads : {1, 2, 3}) {
    ThreadTeam team(threads);
    for (int64_t rows : {1, 16, 37}) {
      const RandomMatrix matrix(GetParam(), rows, columns, static_cast<uint32_t>(rows));
      const StoredTensor* tensors[] = {&matrix.tensor};
      const auto weight = pack_plain(tensors, team);
      ASSERT_TRUE(weight) << weight.error().message;
      EXPECT_EQ(weight->n(), rows);
      expect_rows(*weight, 0, matrix);
    }
  }
}

TEST_P(PackingTest, ScalesThatAreNoNumbersAreRefusedByName) {
  const StorageTypeTraits& t = traits(GetParam());
  const bool has_scales = t.block_elements > 1 && GetParam() != StorageType::mxfp4;
  if (!has_scales) GTEST_SKIP() << "no scales, or powers of two that are all finite";
  ThreadTeam team(2);
  for (const uint16_t bits : {uint16_t{0x7c00}, uint16_t{0xfc00}, uint16_t{0x7e00}}) {
    RandomMatrix matrix(GetParam(), 37, 512, 5);
    const size_t block = matrix.bytes.size() / static_cast<size_t>(t.block_bytes) - 1;
    const size_t scale = GetParam() == StorageType::q6_k ? 208 : 0;
    std::memcpy(matrix.bytes.data() + block * static_cast<size_t>(t.block_bytes) + scale, &bits, 2);
    const StoredTensor* tensors[] = {&matrix.tensor};
    const auto weight = pack_plain(tensors, team);
    ASSERT_FALSE(weight);
    EXPECT_NE(weight.error().message.find(matrix.tensor.name), std::string::npos);
    EXPECT_NE(weight.error().message.find("infinite or no number"), std::string::npos);
  }
}

TEST_P(PackingTest, MatricesAreStackedAndInterleavedHeadsStraightened) {
  const int64_t columns = traits(GetParam()).block_elements == 256 ? 256 : 64;
  ThreadTeam team(2);
  RandomMatrix q(GetParam(), 24, columns, 1);
  q.tensor.row_order.interleaved_heads = 3;
  const RandomMatrix v(GetParam(), 21, columns, 2);
  const StoredTensor* tensors[] = {&q.tensor, &v.tensor};
  const auto weight = pack_plain(tensors, team);
  ASSERT_TRUE(weight);
  EXPECT_EQ(weight->n(), 45);
  expect_rows(*weight, 0, q);
  expect_rows(*weight, 24, v);
}

INSTANTIATE_TEST_SUITE_P(Types, PackingTest,
                         ::testing::Values(StorageType::f32, StorageType::f16, StorageType::bf16,
                                           StorageType::q8_0, StorageType::q4_0, StorageType::q4_1,
                                           StorageType::q5_0, StorageType::q5_1, StorageType::q4_k,
                                           StorageType::q5_k, StorageType::q6_k,
                                           StorageType::mxfp4),
                         [](const auto& test) { return std::string(traits(test.param).name); });

TEST(Packing, IntegerTensorsAreRefusedByName) {
  StoredTensor tensor;
  tensor.name = "model.ids";
  tensor.type = StorageType::i32;
  const auto matrix = make_plain_matrix(tensor);
  ASSERT_FALSE(matrix);
  EXPECT_NE(matrix.error().message.find("model.ids"), std::string::npos);
}

}  // namespace
}  // namespace tw
