// FP8 and INT8 schemes: what is packed equals the format's definition bit for bit (golden file of
// tools/golden/make_byte_scheme_golden.py), and checkpoints that contradict themselves are refused.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/gemm/unpack.h"
#include "weights/memory_checkpoint.h"
#include "weights/packing.h"
#include "weights/schemes/scheme.h"

namespace tw {
namespace {

using kernels::WeightFormat;
using testing_support::MemoryCheckpoint;
using testing_support::MemoryTensor;

constexpr int64_t kRows = 16;
constexpr int64_t kColumns = 320;

std::string compressed(const std::string& format, const std::string& weights) {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
             "input_activations": {"dynamic": true, "num_bits": 8, "strategy": "token"},
             "weights": )" +
         weights + "}}}";
}

struct Case {
  const char* layer;
  std::string config;
  WeightFormat format;
  const char* scales = "weight_scale";
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"fp8_block",
       R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
           "weight_block_size": [8, 128], "modules_to_not_convert": ["lm_head"]})",
       WeightFormat::fp8, "weight_scale_inv"},
      {"fp8_channel",
       compressed("float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "channel"})"),
       WeightFormat::fp8},
      {"fp8_channel", R"({"quant_method": "fbgemm_fp8"})", WeightFormat::fp8},
      {"fp8_tensor",
       compressed("naive-quantized", R"({"num_bits": 8, "type": "float", "strategy": "tensor"})"),
       WeightFormat::fp8},
      {"fp8_tensor", R"({"quant_method": "fp8", "activation_scheme": "static"})",
       WeightFormat::fp8},
      {"int8_channel",
       compressed("int-quantized", R"({"num_bits": 8, "type": "int", "strategy": "channel"})"),
       WeightFormat::int8},
      {"int8_channel", R"({"quant_method": "w8a8_int8"})", WeightFormat::int8},
      {"int8_tensor", R"({"quant_method": "w8a8_int8"})", WeightFormat::int8},
  };
  return kCases;
}

std::vector<MemoryTensor> golden_tensors() {
  return testing_support::read_tensors(std::filesystem::path(TW_SOURCE_DIR) /
                                       "tests/weights/golden/byte_schemes.safetensors");
}

Expected<std::unique_ptr<const Scheme>> make(const std::string& quantization_config) {
  const auto config = parse_json(quantization_config, "test");
  EXPECT_TRUE(config) << quantization_config;
  return make_scheme(Json{{"quantization_config", *config}}, "config.json");
}

std::vector<float> floats(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* tensor = checkpoint.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> values(tensor->data.size() / sizeof(float));
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

void expect_rows(const kernels::PackedWeight& weight, int64_t first,
                 const std::vector<float>& expected) {
  std::vector<float> row(kColumns);
  for (int64_t n = 0; n < kRows; ++n) {
    unpack_row(weight, first + n, row.data());
    for (int64_t k = 0; k < kColumns; ++k) {
      const float actual = row[static_cast<size_t>(k)];
      const float wanted = expected[static_cast<size_t>(n * kColumns + k)];
      if (std::isnan(wanted) && std::isnan(actual)) continue;
      if (actual == 0 && wanted == 0) continue;  // of either sign
      ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(wanted))
          << "row " << n << ", column " << k << ": " << actual << " and " << wanted;
    }
  }
}

TEST(ByteSchemes, PackedWeightsEqualTheDefinition) {
  const MemoryCheckpoint checkpoint(golden_tensors());
  for (const Case& test : cases()) {
    SCOPED_TRACE(std::string(test.layer) + " as " + test.config);
    const auto scheme = make(test.config);
    ASSERT_TRUE(scheme) << scheme.error().message;
    const auto matrix = (*scheme)->open(checkpoint, test.layer, kRows, kColumns);
    ASSERT_TRUE(matrix) << matrix.error().message;
    EXPECT_EQ((*matrix)->format(), test.format);
    EXPECT_EQ((*matrix)->tensors().size(), 2u);
    ThreadTeam team(2);
    const StoredMatrix* matrices[] = {matrix->get()};
    const auto weight = pack(matrices, team);
    ASSERT_TRUE(weight) << weight.error().message;
    expect_rows(*weight, 0, floats(checkpoint, std::string(test.layer) + ".expected"));
  }
}

// Query, key and value, say, with scales of different kinds.
TEST(ByteSchemes, MatricesOfOneFormatAreStacked) {
  const MemoryCheckpoint checkpoint(golden_tensors());
  const auto scheme = make(R"({"quant_method": "fp8"})");
  ASSERT_TRUE(scheme);
  const auto first = (*scheme)->open(checkpoint, "fp8_tensor", kRows, kColumns);
  const auto second = (*scheme)->open(checkpoint, "fp8_channel", kRows, kColumns);
  ASSERT_TRUE(first && second);
  ThreadTeam team(2);
  const StoredMatrix* matrices[] = {first->get(), second->get()};
  const auto weight = pack(matrices, team);
  ASSERT_TRUE(weight) << weight.error().message;
  expect_rows(*weight, 0, floats(checkpoint, "fp8_tensor.expected"));
  expect_rows(*weight, kRows, floats(checkpoint, "fp8_channel.expected"));
}

TEST(ByteSchemes, LayersLeftInFloatsArePlain) {
  const std::vector<std::byte> zeros(static_cast<size_t>(kRows * kColumns) * 2);
  for (const Case& test : cases()) {
    const MemoryCheckpoint checkpoint(
        {{"lm_head.weight", StorageType::bf16, {kRows, kColumns}, zeros}});
    const auto matrix = (*make(test.config))->open(checkpoint, "lm_head", kRows, kColumns);
    ASSERT_TRUE(matrix) << test.config << matrix.error().message;
    EXPECT_EQ((*matrix)->format(), WeightFormat::bf16);
  }
}

// Bad checkpoints

using Spoil = void (*)(MemoryTensor& weight, MemoryTensor& scales);

void expect_refused(const Case& test, Spoil spoil, const std::vector<std::string>& words,
                    int64_t rows = kRows) {
  SCOPED_TRACE(test.config);
  std::vector<MemoryTensor> tensors = golden_tensors();
  const auto find = [&](const std::string& name) -> MemoryTensor& {
    for (MemoryTensor& tensor : tensors) {
      if (tensor.name == std::string(test.layer) + "." + name) return tensor;
    }
    ADD_FAILURE() << name;
    return tensors.front();
  };
  spoil(find("weight"), find(test.scales));
  const MemoryCheckpoint checkpoint(std::move(tensors));
  const auto matrix = (*make(test.config))->open(checkpoint, test.layer, rows, kColumns);
  ASSERT_FALSE(matrix) << test.layer;
  for (const std::string& word : words) {
    EXPECT_NE(matrix.error().message.find(word), std::string::npos)
        << matrix.error().message << "\nlacks " << word;
  }
}

TEST(BadByteCheckpoint, IsRefusedByName) {
  for (const Case& test : cases()) {
    const std::string layer = test.layer;
    const std::string scales = layer + "." + test.scales;
    expect_refused(test, [](MemoryTensor& weight, MemoryTensor&) { weight.name = "elsewhere"; },
                   {layer + ".weight", "missing"});
    expect_refused(test, [](MemoryTensor&, MemoryTensor& tensor) { tensor.name = "elsewhere"; },
                   {scales, "missing"});
    expect_refused(test, [](MemoryTensor& weight, MemoryTensor&) { weight.type = StorageType::u8; },
                   {layer + ".weight", "has type U8", "expected"});
    expect_refused(test,
                   [](MemoryTensor&, MemoryTensor& tensor) {
                     tensor.shape = {7};
                     tensor.data.resize(28);
                   },
                   {scales, "has shape [7]", "expected ["});
    expect_refused(test,
                   [](MemoryTensor&, MemoryTensor& tensor) { tensor.type = StorageType::i32; },
                   {scales, "has type I32", "F32"});
    expect_refused(
        test, [](MemoryTensor&, MemoryTensor&) {}, {layer, "has shape [16, 320]"}, 15);
    expect_refused(test,
                   [](MemoryTensor&, MemoryTensor& tensor) {
                     if (tensor.type == StorageType::f32) {
                       tensor.set<float>(0, std::numeric_limits<float>::quiet_NaN());
                     } else {
                       tensor.set<uint16_t>(0, 0x7fc0);
                     }
                   },
                   {scales, "nan", "element 0", "finite"});
  }
}

TEST(BadByteCheckpoint, UnsupportedConfigurationsAreNamed) {
  const auto expect_config_refused = [](const std::string& config, const char* word) {
    const auto scheme = make(config);
    ASSERT_FALSE(scheme) << config;
    EXPECT_NE(scheme.error().message.find(word), std::string::npos) << scheme.error().message;
    EXPECT_NE(scheme.error().message.find("config.json"), std::string::npos);
  };
  expect_config_refused(R"({"quant_method": "fp8", "fmt": "e5m2"})", "e5m2");
  expect_config_refused(R"({"quant_method": "fp8", "weight_block_size": [128]})",
                        "weight_block_size");
  expect_config_refused(R"({"quant_method": "fp8", "weight_block_size": [128, 64]})",
                        "multiple of 128");
  expect_config_refused(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})",
                        "weight_block_size");
  expect_config_refused(R"({"quant_method": "fp8", "weight_block_size": "x"})",
                        "weight_block_size");
  expect_config_refused(
      compressed("int-quantized", R"({"num_bits": 4, "type": "int", "strategy": "channel"})"),
      "num_bits");
  expect_config_refused(
      compressed("int-quantized",
                 R"({"num_bits": 8, "type": "int", "strategy": "group", "group_size": 64})"),
      "strategy");
  expect_config_refused(
      compressed("int-quantized",
                 R"({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": false})"),
      "symmetric");
  expect_config_refused(
      compressed("float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "block"})"),
      "block_structure");
  expect_config_refused(compressed("marlin-24", R"({"num_bits": 8, "type": "int"})"), "marlin-24");
}

TEST(BadByteCheckpoint, Int8IsRefusedWhereSumsCouldOverflow) {
  const int64_t columns = kernels::kMaxInt8Depth + 1;
  const MemoryCheckpoint checkpoint(
      {{"m.weight", StorageType::i8, {1, columns}, std::vector<std::byte>(132105)},
       {"m.weight_scale", StorageType::f32, {1, 1}, std::vector<std::byte>(4)}});
  const auto matrix =
      (*make(R"({"quant_method": "w8a8_int8"})"))->open(checkpoint, "m", 1, columns);
  ASSERT_FALSE(matrix);
  EXPECT_NE(matrix.error().message.find("132105 columns"), std::string::npos)
      << matrix.error().message;
}

}  // namespace
}  // namespace tw
