// Quantizers against compressed-tensors (golden file of tools/golden/make_quantize_golden.py) and
// against straightforward rounding; what cannot be quantized is refused by name.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/dtype.h"
#include "kernels/gemm/unpack.h"
#include "weights/memory_checkpoint.h"
#include "weights/packing.h"
#include "weights/quantize/quantized_module.h"
#include "weights/quantize/quantizing_scheme.h"
#include "weights/quantize/rounding.h"
#include "weights/quantize/selection.h"

namespace tw {
namespace {

using testing_support::MemoryCheckpoint;
using testing_support::MemoryTensor;

constexpr const char* kFormats[] = {"fp8", "int4", "mxfp4", "nvfp4", "w8a8_int8"};

// Of all `numbers`, the nearest; of two as near, the one whose place is even.
float nearest(const std::vector<float>& numbers, float value) {
  size_t best = 0;
  for (size_t i = 1; i < numbers.size(); ++i) {
    const float distance = std::abs(numbers[i] - value), least = std::abs(numbers[best] - value);
    if (distance < least || (distance == least && i % 2 == 0)) best = i;
  }
  return numbers[best];
}

std::vector<float> values_around(const std::vector<float>& numbers) {
  std::vector<float> values = {0.0f, 1e-30f, 1000.0f};
  for (size_t i = 0; i + 1 < numbers.size(); ++i) {
    const float middle = (numbers[i] + numbers[i + 1]) / 2;
    for (const float value :
         {numbers[i], middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      values.push_back(value);
    }
  }
  return values;
}

TEST(QuantizerRounding, E4m3IsTheNearest) {
  std::vector<float> numbers;
  for (int bits = 0; bits < 127; ++bits) {
    numbers.push_back(to_float(f8_e4m3_t{static_cast<uint8_t>(bits)}));
  }
  for (const float value : values_around(numbers)) {
    EXPECT_EQ(to_float(to_f8_e4m3(value)), nearest(numbers, value)) << value;
    EXPECT_EQ(to_float(to_f8_e4m3(-value)), -nearest(numbers, value)) << value;
  }
}

TEST(QuantizerRounding, E2m1IsTheNearest) {
  const std::vector<float> numbers = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (const float value : values_around(numbers)) {
    EXPECT_EQ(round_to_e2m1(value), nearest(numbers, value)) << value;
    EXPECT_EQ(round_to_e2m1(-value), -nearest(numbers, value)) << value;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(e2m1_bits(numbers[i]), i);
    EXPECT_EQ(e2m1_bits(-numbers[i]), i | 8);
  }
}

TEST(QuantizerRounding, IntegersAreTheNearest) {
  for (float value = -130; value < 130; value += 0.125f) {
    EXPECT_EQ(round_to_integer(value), std::nearbyint(value)) << value;
  }
}

MemoryTensor matrix_tensor(const std::string& name, const std::vector<float>& values,
                           std::vector<int64_t> shape) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, StorageType::f32, std::move(shape), {bytes.begin(), bytes.end()}};
}

std::vector<float> golden(const std::string& name) {
  for (const MemoryTensor& tensor : testing_support::read_tensors(
           std::filesystem::path(TW_SOURCE_DIR) / "tests/weights/golden/quantize.safetensors")) {
    if (tensor.name != name) continue;
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return values;
  }
  ADD_FAILURE() << name;
  return {};
}

// The matrix as it is after online quantization, [rows, columns].
std::vector<float> quantized(const std::vector<float>& values, int64_t rows, int64_t columns,
                             const QuantizationOptions& options, int threads = 2) {
  const MemoryCheckpoint checkpoint({matrix_tensor("m.weight", values, {rows, columns})});
  ThreadTeam team(threads);
  const auto scheme = make_quantizing_scheme(checkpoint, options, team);
  EXPECT_TRUE(scheme) << (scheme ? "" : scheme.error().message);
  const auto matrix = (*scheme)->open(checkpoint, "m", rows, columns);
  EXPECT_TRUE(matrix) << (matrix ? "" : matrix.error().message);
  if (!matrix) return {};
  EXPECT_EQ((*matrix)->tensors().front(), checkpoint.find("m.weight"));
  const StoredMatrix* matrices[] = {matrix->get()};
  const auto weight = pack(matrices, team);
  EXPECT_TRUE(weight) << (weight ? "" : weight.error().message);
  std::vector<float> result(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    unpack_row(*weight, row, result.data() + row * columns);
  }
  return result;
}

double squared_distance(const std::vector<float>& a, const std::vector<float>& b, size_t begin,
                        size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return sum;
}

constexpr int64_t kRows = 8, kColumns = 96;

TEST(Quantizers, EightBitsEqualCompressedTensors) {
  const std::vector<float> weight = golden("weight");
  for (const char* format : {"fp8", "w8a8_int8"}) {
    const std::vector<float> expected = golden(format);
    const std::vector<float> actual = quantized(weight, kRows, kColumns, {format});
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i], expected[i]) << format << " at " << i << " of " << weight[i];
    }
  }
}

// The search for scales tries those of compressed-tensors too, or neighbours of them: no channel is
// further from the weights than there, all together are nearer.
TEST(Quantizers, FourBitsLoseLessThanCompressedTensors) {
  const std::vector<float> weight = golden("weight");
  for (const char* format : {"int4", "mxfp4", "nvfp4"}) {
    const std::vector<float> reference = golden(format);
    const std::vector<float> actual = quantized(weight, kRows, kColumns, {format});
    ASSERT_EQ(actual.size(), reference.size());
    double total = 0, reference_total = 0;
    for (size_t row = 0; row < kRows; ++row) {
      const size_t begin = row * kColumns, end = begin + kColumns;
      const double error = squared_distance(actual, weight, begin, end);
      const double reference_error = squared_distance(reference, weight, begin, end);
      EXPECT_LE(error, 1.02 * reference_error) << format << ", row " << row;
      total += error / reference_error;
      reference_total += 1;
    }
    EXPECT_LT(total, reference_total) << format;
  }
}

TEST(Quantizers, AnyNumberOfThreadsGivesTheSame) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> weight(37 * 256);
  for (float& value : weight) value = normal(random);
  for (const char* format : kFormats) {
    EXPECT_EQ(quantized(weight, 37, 256, {format}, 1), quantized(weight, 37, 256, {format}, 3))
        << format;
  }
  EXPECT_NE(quantized(weight, 37, 256, {"int4"}), quantized(weight, 37, 256, {"int4", 128}));
}

TEST(Quantizers, ZerosStayZeros) {
  std::vector<float> weight(16 * 64, 0.0f);
  weight[70] = 1.0f;
  for (const char* format : kFormats) {
    const std::vector<float> actual = quantized(weight, 16, 64, {format});
    for (size_t i = 0; i < weight.size(); ++i) {
      ASSERT_NEAR(actual[i], weight[i], weight[i] / 32) << format << " at " << i;
    }
  }
}

TEST(Quantizers, TinyAndHugeWeightsAreKept) {
  for (const float magnitude : {1e-20f, 1e-6f, 1e20f}) {
    std::vector<float> weight(16 * 64);
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] = magnitude * (static_cast<float>(i % 7) - 3.0f);
    }
    for (const char* format : kFormats) {
      const std::vector<float> actual = quantized(weight, 16, 64, {format});
      for (size_t i = 0; i < weight.size(); ++i) {
        ASSERT_NEAR(actual[i], weight[i], 0.6f * magnitude) << format << " at " << i;
      }
    }
  }
}

TEST(Quantizers, EmbeddingsRoutersAndOtherModalitiesAreLeftAlone) {
  for (const char* module :
       {"model.embed_tokens", "lm_head", "model.layers.0.mlp.gate",
        "model.layers.3.block_sparse_moe.gate", "model.layers.1.mlp.router",
        "model.layers.1.mlp.shared_expert_gate", "model.layers.0.linear_attn.in_proj_ba",
        "model.layers.0.linear_attn.conv1d", "vision_tower.encoder.layers.0.mlp.fc1"}) {
    EXPECT_FALSE(is_quantized_by_default(module)) << module;
  }
  for (const char* module : {"model.layers.0.mlp.gate_proj", "model.layers.0.self_attn.q_proj",
                             "model.layers.2.mlp.experts.7.down_proj"}) {
    EXPECT_TRUE(is_quantized_by_default(module)) << module;
  }
  const MemoryCheckpoint checkpoint(
      {matrix_tensor("lm_head.weight", std::vector<float>(16 * 64), {16, 64})});
  ThreadTeam team(1);
  const auto scheme = make_quantizing_scheme(checkpoint, {"int4"}, team);
  ASSERT_TRUE(scheme);
  const auto matrix = (*scheme)->open(checkpoint, "lm_head", 16, 64);
  ASSERT_TRUE(matrix);
  EXPECT_EQ((*matrix)->format(), kernels::WeightFormat::bf16);
}

void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << message << "\nlacks " << word;
  }
}

TEST(BadQuantization, IsRefusedByName) {
  std::vector<float> weight(16 * 64, 1.0f);
  weight[3 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  const MemoryCheckpoint broken({matrix_tensor("m.weight", weight, {16, 64})});
  const MemoryCheckpoint uneven(
      {matrix_tensor("m.weight", std::vector<float>(16 * 72, 1.0f), {16, 72})});
  ThreadTeam team(2);
  for (const char* format : kFormats) {
    const auto scheme = make_quantizing_scheme(broken, {format}, team);
    ASSERT_TRUE(scheme);
    const auto refused = (*scheme)->open(broken, "m", 16, 64);
    ASSERT_FALSE(refused) << format;
    expect_words(refused.error().message, {"m.weight", "row 3", "no number"});
  }
  for (const char* format : {"int4", "mxfp4", "nvfp4"}) {
    const auto refused =
        (*make_quantizing_scheme(uneven, {format}, team))->open(uneven, "m", 16, 72);
    ASSERT_FALSE(refused) << format;
    expect_words(refused.error().message, {"m.weight", "72 columns", "groups of"});
  }
}

TEST(BadQuantization, UnknownNamesAndSizesListTheKnown) {
  const auto name = make_quantizer({"int3"});
  ASSERT_FALSE(name);
  expect_words(name.error().message, {"int3", "int4", "w8a8_int8", "mxfp4"});
  for (const int64_t size : {-1, 16, 48, 2048}) {
    const auto refused = make_quantizer({"int4", size});
    ASSERT_FALSE(refused) << size;
    expect_words(refused.error().message, {"--group-size", "multiple of 32"});
  }
  const auto fixed = make_quantizer({"fp8", 64});
  ASSERT_FALSE(fixed);
  expect_words(fixed.error().message, {"--group-size 64", "fp8"});
}

TEST(BadQuantization, QuantizedCheckpointsAreRefused) {
  const MemoryCheckpoint checkpoint(
      {{"m.weight", StorageType::q4_0, {1, 32}, std::vector<std::byte>(18)}});
  ThreadTeam team(1);
  const auto scheme = make_quantizing_scheme(checkpoint, {"fp8"}, team);
  ASSERT_FALSE(scheme);
  expect_words(scheme.error().message, {"already quantized", "m.weight", "Q4_0"});
}

}  // namespace
}  // namespace tw
