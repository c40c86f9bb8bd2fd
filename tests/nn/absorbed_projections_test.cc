// MLA's kv_b_proj, split into the parts that are absorbed: the same weights, transposed and in
// place, in the checkpoint's format where that is exact.
#include "nn/absorbed_projections.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/gemm/unpack.h"
#include "weights/memory_checkpoint.h"
#include "weights/schemes/scheme.h"

namespace tw {
namespace {

using kernels::PackedWeight;
using kernels::WeightFormat;
using testing_support::MemoryCheckpoint;
using testing_support::MemoryTensor;

constexpr int32_t kHeads = 3;
constexpr int64_t kLatent = 256;

// Random weights of a checkpoint, and what they stand for.
struct KvB {
  int64_t nope;
  int64_t value;
  std::vector<MemoryTensor> tensors;
  std::vector<float> values;  // [kHeads * (nope + value), kLatent]

  int64_t rows() const { return kHeads * (nope + value); }
  float at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * kLatent + column)];
  }
};

// DeepSeek's: e4m3 with a scale for each 128 x 128 block.
KvB fp8_weights(int64_t nope, int64_t value) {
  KvB result{nope, value, {}, {}};
  const int64_t rows = result.rows();
  const int64_t grid_rows = (rows + 127) / 128;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  for (int64_t i = 0; i < grid_rows * (kLatent / 128); ++i) {
    scales.push_back(0.01f * static_cast<float>(1 + i % 7));
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < kLatent; ++column) {
      const auto bits = static_cast<uint8_t>((row * 37 + column * 11 + row * column % 5) % 0x7f +
                                             (row + column) % 2 * 0x80);
      const float scale = scales[static_cast<size_t>(row / 128 * (kLatent / 128) + column / 128)];
      bytes.push_back(std::byte{bits});
      result.values.push_back(to_float(f8_e4m3_t{bits}) * scale);
    }
  }
  std::vector<std::byte> scale_bytes(scales.size() * sizeof(float));
  std::memcpy(scale_bytes.data(), scales.data(), scale_bytes.size());
  result.tensors = {
      {"attn.kv_b_proj.weight", StorageType::f8_e4m3, {rows, kLatent}, std::move(bytes)},
      {"attn.kv_b_proj.weight_scale_inv",
       StorageType::f32,
       {grid_rows, kLatent / 128},
       std::move(scale_bytes)}};
  return result;
}

KvB bf16_weights(int64_t nope, int64_t value) {
  KvB result{nope, value, {}, {}};
  std::vector<std::byte> bytes(static_cast<size_t>(result.rows() * kLatent) * sizeof(bf16_t));
  for (int64_t i = 0; i < result.rows() * kLatent; ++i) {
    const bf16_t element = to_bf16(std::sin(static_cast<float>(i)));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(element), &element, sizeof(element));
    result.values.push_back(to_float(element));
  }
  result.tensors = {
      {"attn.kv_b_proj.weight", StorageType::bf16, {result.rows(), kLatent}, std::move(bytes)}};
  return result;
}

const Json kFp8Config = Json::parse(
    R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                "weight_block_size": [128, 128]}})");

Expected<AbsorbedProjections> load(const KvB& weights, const Json& config) {
  ThreadTeam team(2);
  const MemoryCheckpoint checkpoint(weights.tensors);
  auto scheme = make_scheme(config, "test");
  EXPECT_TRUE(scheme);
  WeightLoader loader(checkpoint, team, {CpuFeatures{}, kernels::ActivationPrecision::bf16});
  loader.scheme = scheme->get();
  return AbsorbedProjections::load(loader, "attn", kHeads, weights.nope, weights.value, kLatent,
                                   {0, kHeads});
}

void expect_split(const KvB& weights, const AbsorbedProjections& absorbed, float relative_error) {
  std::vector<float> key(static_cast<size_t>(weights.nope)), value(kLatent);
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t first = head * (weights.nope + weights.value);
    for (int64_t j = 0; j < kLatent; ++j) {
      kernels::unpack_row(absorbed.keys.weight(), head * kLatent + j, key.data());
      for (int64_t i = 0; i < weights.nope; ++i) {
        const float expected = weights.at(first + i, j);
        ASSERT_LE(std::abs(key[static_cast<size_t>(i)] - expected),
                  std::abs(expected) * relative_error)
            << "head " << head << ", row " << i << ", column " << j;
      }
    }
    for (int64_t i = 0; i < weights.value; ++i) {
      kernels::unpack_row(absorbed.values.weight(), head * weights.value + i, value.data());
      for (int64_t j = 0; j < kLatent; ++j) {
        ASSERT_EQ(value[static_cast<size_t>(j)], weights.at(first + weights.nope + i, j));
      }
    }
  }
}

TEST(AbsorbedProjectionsTest, Bf16IsExact) {
  const KvB weights = bf16_weights(48, 64);
  const auto absorbed = load(weights, Json::object());
  ASSERT_TRUE(absorbed) << absorbed.error().message;
  EXPECT_EQ(absorbed->keys.output_size(), kLatent);
  EXPECT_EQ(absorbed->values.output_size(), 64);
  expect_split(weights, *absorbed, 0.0f);
}

// What GGUF has: the keys of each head transposed, and the values.
KvB halves_of(const KvB& whole) {
  std::vector<bf16_t> keys, values;
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t first = head * (whole.nope + whole.value);
    for (int64_t j = 0; j < kLatent; ++j) {
      for (int64_t i = 0; i < whole.nope; ++i) keys.push_back(to_bf16(whole.at(first + i, j)));
    }
    for (int64_t i = 0; i < whole.value; ++i) {
      for (int64_t j = 0; j < kLatent; ++j) {
        values.push_back(to_bf16(whole.at(first + whole.nope + i, j)));
      }
    }
  }
  const auto bytes = [](const std::vector<bf16_t>& elements) {
    const auto all = std::as_bytes(std::span(elements));
    return std::vector<std::byte>(all.begin(), all.end());
  };
  KvB result = whole;
  result.tensors = {
      {"attn.k_b_proj.weight", StorageType::bf16, {kHeads * kLatent, whole.nope}, bytes(keys)},
      {"attn.v_b_proj.weight", StorageType::bf16, {kHeads * whole.value, kLatent}, bytes(values)}};
  return result;
}

TEST(AbsorbedProjectionsTest, HalvesAreTakenAsTheyAre) {
  KvB weights = halves_of(bf16_weights(48, 64));
  const auto absorbed = load(weights, Json::object());
  ASSERT_TRUE(absorbed) << absorbed.error().message;
  expect_split(weights, *absorbed, 0.0f);

  weights.tensors.pop_back();
  const auto refused = load(weights, Json::object());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("attn.v_b_proj.weight is missing"), std::string::npos);
}

// As files of quantized models have them: nothing is decoded.
TEST(AbsorbedProjectionsTest, QuantizedHalvesStayQuantized) {
  constexpr int64_t kNope = 64, kValue = 32;
  KvB weights{kNope, kValue, {}, {}};
  const auto blocks = [](int64_t count) {
    std::vector<std::byte> bytes;
    for (int64_t block = 0; block < count; ++block) {
      const f16_t scale = to_f16(0.5f);
      const auto scale_bytes = std::as_bytes(std::span(&scale, 1));
      bytes.insert(bytes.end(), scale_bytes.begin(), scale_bytes.end());
      for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::byte>(block * 7 + i));
    }
    return bytes;
  };
  const int64_t key_rows = kHeads * kLatent, value_rows = kHeads * kValue;
  weights.tensors = {
      {"attn.k_b_proj.weight", StorageType::q8_0, {key_rows, kNope}, blocks(key_rows * kNope / 32)},
      {"attn.v_b_proj.weight",
       StorageType::q8_0,
       {value_rows, kLatent},
       blocks(value_rows * kLatent / 32)}};
  const auto absorbed = load(weights, Json::object());
  ASSERT_TRUE(absorbed) << absorbed.error().message;
  EXPECT_EQ(absorbed->keys.format(), WeightFormat::q8_0);
  EXPECT_EQ(absorbed->values.format(), WeightFormat::q8_0);
  std::vector<float> row(kNope);
  kernels::unpack_row(absorbed->keys.weight(), 1, row.data());
  EXPECT_EQ(row[33], 0.5f * (3 * 7 + 1));  // block 3, element 1
}

// As in DeepSeek-V3: 128 rows of keys and 128 of values for each head.
TEST(AbsorbedProjectionsTest, Fp8StaysFp8WhereBlocksAreWhole) {
  const KvB weights = fp8_weights(128, 128);
  const auto absorbed = load(weights, kFp8Config);
  ASSERT_TRUE(absorbed) << absorbed.error().message;
  EXPECT_EQ(absorbed->keys.format(), WeightFormat::fp8);
  EXPECT_EQ(absorbed->values.format(), WeightFormat::fp8);
  expect_split(weights, *absorbed, 0.0f);
}

// A head's keys that are no 128 rows, or that lie in two blocks.
TEST(AbsorbedProjectionsTest, Fp8BecomesBf16WhereTheyAreNot) {
  for (const int64_t nope : {64, 128}) {
    const KvB weights = fp8_weights(nope, 64);
    const auto absorbed = load(weights, kFp8Config);
    ASSERT_TRUE(absorbed) << absorbed.error().message;
    EXPECT_EQ(absorbed->keys.format(), WeightFormat::bf16);
    EXPECT_EQ(absorbed->values.format(), WeightFormat::fp8);
    expect_split(weights, *absorbed, 0x1p-8f);
  }
}

TEST(AbsorbedProjectionsTest, RefusesWhatItCannotSplit) {
  const auto absorbed = load(bf16_weights(40, 64), Json::object());
  ASSERT_FALSE(absorbed);
  EXPECT_NE(absorbed.error().message.find("qk_nope_head_dim 40"), std::string::npos);
}

}  // namespace
}  // namespace tw
