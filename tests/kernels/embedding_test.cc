#include "kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/gemm/unpack.h"
#include "kernels/vector_rows.h"

namespace tw::kernels {
namespace {

class EmbeddingTest : public testing::TestWithParam<const KernelRow<EmbeddingKernels>*> {
 protected:
  const EmbeddingKernels& kernels() const { return *GetParam()->functions; }
};

INSTANTIATE_TEST_SUITE_P(Table, EmbeddingTest, testing::ValuesIn(machine_rows(embedding_kernels())),
                         row_name<EmbeddingKernels>);

const std::vector<int32_t> kTokens = {0, 39, 7, 7, 16};

TEST_P(EmbeddingTest, DenseTables) {
  for (const int64_t n : {1, 16, 23, 64}) {
    const int64_t stride = n + 3;
    const std::vector<float> f32 = random_floats(40 * stride, 1);
    std::vector<bf16_t> bf16;
    std::vector<f16_t> f16;
    for (const float x : f32) {
      bf16.push_back(to_bf16(x));
      f16.push_back(to_f16(x));
    }
    const auto check = [&](const DenseTable& table, auto value) {
      std::vector<float> out(5 * static_cast<size_t>(n), -7.0f);
      kernels().dense({kTokens.data(), 3.0f, dense_matrix(out.data(), 5, n)}, table, {1, 5});
      for (size_t t = 0; t < 5; ++t) {
        for (int64_t i = 0; i < n; ++i) {
          const auto index = static_cast<size_t>(kTokens[t] * stride + i);
          ASSERT_EQ(out[t * static_cast<size_t>(n) + static_cast<size_t>(i)],
                    t == 0 ? -7.0f : value(index) * 3.0f);
        }
      }
    };
    check({DType::f32, f32.data(), stride}, [&](size_t i) { return f32[i]; });
    check({DType::bf16, bf16.data(), stride}, [&](size_t i) { return to_float(bf16[i]); });
    check({DType::f16, f16.data(), stride}, [&](size_t i) { return to_float(f16[i]); });
  }
}

TEST_P(EmbeddingTest, PackedTables) {
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::q4_1, WeightFormat::q8_0}) {
    const int64_t n = 96;
    const auto table = random_weight(format, 40, n, 5);
    ASSERT_TRUE(table.has_value());
    std::vector<float> row(static_cast<size_t>(n));
    for (const float scale : {1.0f, 0.5f}) {
      std::vector<float> out(5 * static_cast<size_t>(n), -7.0f);
      kernels().packed({kTokens.data(), scale, dense_matrix(out.data(), 5, n)}, *table, {0, 4});
      for (size_t t = 0; t < 5; ++t) {
        unpack_row(*table, kTokens[t], row.data());
        for (size_t i = 0; i < row.size(); ++i) {
          ASSERT_EQ(out[t * row.size() + i], t == 4 ? -7.0f : row[i] * scale);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tw::kernels
