// 4-bit schemes: what is packed equals the format's definition bit for bit (golden files of
// tools/golden/make_scheme_golden.py), and checkpoints that contradict themselves are refused.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/gemm/unpack.h"
#include "weights/memory_checkpoint.h"
#include "weights/packing.h"
#include "weights/schemes/fp4.h"
#include "weights/schemes/scheme.h"

namespace tw {
namespace {

using kernels::WeightFormat;
using testing_support::MemoryCheckpoint;
using testing_support::MemoryTensor;

constexpr int64_t kRows = 24;
constexpr int64_t kColumns = 128;

std::vector<MemoryTensor> golden_tensors(const std::string& file) {
  return testing_support::read_tensors(std::filesystem::path(TW_SOURCE_DIR) /
                                       "tests/weights/golden" / (file + ".safetensors"));
}

std::unique_ptr<const Scheme> make(const std::string& quantization_config) {
  const auto config = parse_json(quantization_config, "test");
  EXPECT_TRUE(config) << quantization_config;
  auto scheme = make_scheme(Json{{"quantization_config", *config}}, "config.json");
  EXPECT_TRUE(scheme) << (scheme ? "" : scheme.error().message);
  return scheme ? std::move(*scheme) : nullptr;
}

std::string packed_config(const std::string& weights) {
  return R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
             "config_groups": {"group_0": {"targets": ["Linear"], "weights": )" +
         weights + "}}}";
}

std::string fp4_config(const std::string& format) {
  return R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"format": ")" +
         format + R"(", "weights": {"num_bits": 4, "type": "float"}}}})";
}

void expect_weights(const StoredMatrix& matrix, std::span<const float> expected) {
  ThreadTeam team(2);
  const StoredMatrix* matrices[] = {&matrix};
  const auto weight = pack(matrices, team);
  ASSERT_TRUE(weight) << weight.error().message;
  ASSERT_EQ(weight->n(), kRows);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kRows * kColumns));
  const std::span<const int32_t> order = matrix.input_order();
  std::vector<float> row(kColumns);
  for (int64_t n = 0; n < kRows; ++n) {
    unpack_row(*weight, n, row.data());
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t column = order.empty() ? i : static_cast<size_t>(order[i]);
      const float wanted = expected[static_cast<size_t>(n) * row.size() + column];
      // A quant that is zero may have either sign.
      if (row[i] == 0 && wanted == 0) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(row[i]), std::bit_cast<uint32_t>(wanted))
          << "row " << n << ", column " << column << ": " << row[i] << " and " << wanted;
    }
  }
}

std::span<const float> floats(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) return {};
  return {reinterpret_cast<const float*>(tensor->data.data()), tensor->data.size() / sizeof(float)};
}

struct Case {
  const char* layer;
  const char* file;
  std::string config;
  WeightFormat format;
  bool has_output_scales = false;
  bool is_ordered = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"awq_32", "int4_schemes", R"({"quant_method": "awq", "bits": 4, "group_size": 32})",
       WeightFormat::q4_z},
      {"awq_128", "int4_schemes",
       R"({"quant_method": "awq", "bits": 4, "group_size": -1, "version": "GEMM"})",
       WeightFormat::q4_z},
      {"gptq_64", "int4_schemes", R"({"quant_method": "gptq", "bits": 4, "group_size": 64})",
       WeightFormat::q4_z},
      {"gptq_even", "int4_schemes",
       R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq"})",
       WeightFormat::q4_0},
      {"gptq_v2", "int4_schemes",
       R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"})",
       WeightFormat::q4_z},
      {"gptq_act_order", "int4_schemes",
       R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true})",
       WeightFormat::q4_z, false, true},
      {"gptq_64", "int4_schemes",
       R"({"quant_method": "auto-round", "bits": 4, "group_size": 64, "data_type": "int",
           "packing_format": "auto_round:auto_gptq"})",
       WeightFormat::q4_z},
      {"awq_32", "int4_schemes",
       R"({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "int",
           "packing_format": "auto_round:auto_awq"})",
       WeightFormat::q4_z},
      {"packed_32", "int4_schemes",
       packed_config(R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32})"),
       WeightFormat::q4_0},
      {"packed_channel", "int4_schemes",
       packed_config(R"({"num_bits": 4, "strategy": "channel", "symmetric": false})"),
       WeightFormat::q4_z},
      {"packed_act_order", "int4_schemes",
       packed_config(R"({"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false,
                         "actorder": "group"})"),
       WeightFormat::q4_z, false, true},
      {"packed_wide", "int4_schemes",
       packed_config(
           R"({"num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": false})"),
       WeightFormat::q4_z, true},
      {"nvfp4", "fp4_schemes", R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
       WeightFormat::fp4_16, true},
      {"nvfp4_divided", "fp4_schemes", fp4_config("nvfp4-pack-quantized"), WeightFormat::fp4_16,
       true},
      {"mxfp4", "fp4_schemes", fp4_config("mxfp4-pack-quantized"), WeightFormat::fp4},
      {"mxfp4_low", "fp4_schemes", fp4_config("mxfp4-pack-quantized"), WeightFormat::fp4, true},
      {"mxfp4_high", "fp4_schemes", fp4_config("mxfp4-pack-quantized"), WeightFormat::fp4, true},
  };
  return kCases;
}

TEST(FourBitSchemes, PackedWeightsEqualTheDefinition) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(std::string(test.layer) + " as " + test.config);
    const MemoryCheckpoint checkpoint(golden_tensors(test.file));
    const auto scheme = make(test.config);
    ASSERT_NE(scheme, nullptr);
    const auto matrix = scheme->open(checkpoint, test.layer, kRows, kColumns);
    ASSERT_TRUE(matrix) << matrix.error().message;
    EXPECT_EQ((*matrix)->format(), test.format);
    EXPECT_EQ((*matrix)->has_output_scales(), test.has_output_scales);
    EXPECT_EQ(!(*matrix)->input_order().empty(), test.is_ordered);
    expect_weights(**matrix, floats(checkpoint, std::string(test.layer) + ".expected"));
    if (HasFatalFailure()) return;
  }
}

TEST(FourBitSchemes, ExpertsOfGptOssArePackedOneByOne) {
  const MemoryCheckpoint checkpoint(golden_tensors("fp4_schemes"));
  const auto expected = floats(checkpoint, "experts.expected");
  constexpr auto kSize = static_cast<size_t>(kRows * kColumns);
  for (size_t expert = 0; expert < 2; ++expert) {
    const auto whole = open_mxfp4_expert(checkpoint, "experts.gate_up_proj", 2, kRows, kColumns,
                                         static_cast<int64_t>(expert), {}, kRows);
    ASSERT_TRUE(whole) << whole.error().message;
    expect_weights(**whole, expected.subspan(expert * kSize, kSize));
    const auto odd = open_mxfp4_expert(checkpoint, "experts.gate_up_proj", 2, kRows, kColumns,
                                       static_cast<int64_t>(expert), {1, 2}, kRows / 2);
    ASSERT_TRUE(odd) << odd.error().message;
    ThreadTeam team(1);
    const StoredMatrix* matrices[] = {odd->get()};
    const auto weight = pack(matrices, team);
    ASSERT_TRUE(weight) << weight.error().message;
    std::vector<float> row(kColumns);
    for (int64_t n = 0; n < kRows / 2; ++n) {
      unpack_row(*weight, n, row.data());
      for (size_t k = 0; k < row.size(); ++k) {
        ASSERT_EQ(row[k], expected[expert * kSize + static_cast<size_t>(2 * n + 1) * kColumns + k]);
      }
    }
  }
  const auto wrong =
      open_mxfp4_expert(checkpoint, "experts.gate_up_proj", 3, kRows, kColumns, 0, {}, kRows);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("experts.gate_up_proj_blocks"), std::string::npos);
}

TEST(FourBitSchemes, LayersLeftInFloatsArePlain) {
  std::vector<std::byte> ones(static_cast<size_t>(kRows * kColumns) * sizeof(float));
  for (const Case& test : cases()) {
    const MemoryCheckpoint checkpoint(
        {{"lm_head.weight", StorageType::f32, {kRows, kColumns}, ones}});
    const auto matrix = make(test.config)->open(checkpoint, "lm_head", kRows, kColumns);
    ASSERT_TRUE(matrix) << test.config << matrix.error().message;
    EXPECT_EQ((*matrix)->format(), WeightFormat::bf16);
  }
}

// Bad checkpoints

struct BadCase {
  const Case* test;
  std::vector<MemoryTensor> tensors;

  MemoryTensor& tensor(const std::string& name) {
    const std::string full = std::string(test->layer) + name;
    for (MemoryTensor& each : tensors) {
      if (each.name == full) return each;
    }
    ADD_FAILURE() << full;
    return tensors.front();
  }
};

BadCase spoil(const char* layer) {
  for (const Case& test : cases()) {
    if (test.layer == std::string_view(layer)) return {&test, golden_tensors(test.file)};
  }
  ADD_FAILURE() << layer;
  return {};
}

void expect_refused(BadCase bad, std::initializer_list<const char*> words, int64_t rows = kRows,
                    int64_t columns = kColumns) {
  const auto scheme = make(bad.test->config);
  const MemoryCheckpoint checkpoint(std::move(bad.tensors));
  const auto matrix = scheme->open(checkpoint, bad.test->layer, rows, columns);
  ASSERT_FALSE(matrix) << bad.test->layer;
  for (const char* word : words) {
    EXPECT_NE(matrix.error().message.find(word), std::string::npos)
        << matrix.error().message << "\nlacks " << word;
  }
}

TEST(BadFourBitCheckpoint, MissingTensorsAreNamed) {
  for (const auto& [layer, names] : std::vector<std::pair<const char*, std::vector<const char*>>>{
           {"awq_32", {".qweight", ".qzeros", ".scales"}},
           {"gptq_64", {".qweight", ".qzeros", ".scales"}},
           {"packed_channel", {".weight_packed", ".weight_scale", ".weight_zero_point"}},
           {"nvfp4", {".weight", ".weight_scale", ".weight_scale_2"}},
           {"nvfp4_divided", {".weight_packed", ".weight_scale", ".weight_global_scale"}},
           {"mxfp4", {".weight_packed", ".weight_scale"}}}) {
    for (const char* name : names) {
      BadCase bad = spoil(layer);
      bad.tensor(name).name += "_elsewhere";
      expect_refused(std::move(bad), {layer, name, "missing"});
    }
  }
}

TEST(BadFourBitCheckpoint, WrongShapesAndTypesAreNamed) {
  for (const auto& [layer, names] : std::vector<std::pair<const char*, std::vector<const char*>>>{
           {"awq_32", {".qweight", ".qzeros", ".scales"}},
           {"gptq_act_order", {".qweight", ".qzeros", ".scales", ".g_idx"}},
           {"packed_act_order",
            {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx"}},
           {"nvfp4", {".weight", ".weight_scale"}},
           {"mxfp4", {".weight_packed", ".weight_scale"}}}) {
    for (const char* name : names) {
      BadCase bad = spoil(layer);
      bad.tensor(name).shape[0] /= 2;
      bad.tensor(name).data.resize(bad.tensor(name).data.size() / 2);
      expect_refused(std::move(bad), {layer, name, "has shape [", "expected ["});
      bad = spoil(layer);
      // Eight bits where there should be more, and the other way round; the data is not reached.
      bad.tensor(name).type =
          bad.tensor(name).type == StorageType::i8 ? StorageType::i32 : StorageType::i8;
      if (layer == std::string_view("nvfp4") && name == std::string_view(".weight")) {
        expect_refused(std::move(bad), {layer, name});  // no float and no pair of nibbles
      } else {
        expect_refused(std::move(bad), {layer, name, "has type I8", "expected"});
      }
    }
  }
}

TEST(BadFourBitCheckpoint, ScalesThatAreNoNumbersAreNamed) {
  BadCase bad = spoil("awq_32");
  bad.tensor(".scales").set<uint16_t>(7, 0x7e00);
  expect_refused(std::move(bad), {"awq_32.scales", "nan", "element 7"});
  bad = spoil("gptq_64");
  bad.tensor(".scales").set<uint16_t>(0, 0x7c00);
  expect_refused(std::move(bad), {"gptq_64.scales", "inf"});
  bad = spoil("packed_32");
  bad.tensor(".weight_scale").set<uint16_t>(3, 0x7fc0);
  expect_refused(std::move(bad), {"packed_32.weight_scale", "nan"});
  bad = spoil("nvfp4");
  bad.tensor(".weight_scale").set<uint8_t>(9, 0x7f);
  expect_refused(std::move(bad), {"nvfp4.weight_scale", "nan"});
  bad = spoil("mxfp4");
  bad.tensor(".weight_scale").set<uint8_t>(9, 255);
  expect_refused(std::move(bad), {"mxfp4.weight_scale", "nan"});
  for (const float value : {0.0f, -1.0f, NAN, INFINITY, 1e-40f}) {
    bad = spoil("nvfp4_divided");
    bad.tensor(".weight_global_scale").set<float>(0, value);
    expect_refused(std::move(bad), {"nvfp4_divided.weight_global_scale", "positive"});
  }
}

TEST(BadFourBitCheckpoint, GroupsThatDoNotFitAreRefused) {
  // 96 columns in groups of 64; outputs that are no whole words.
  expect_refused(spoil("gptq_64"), {"gptq_64", "96 columns", "groups of 64", "multiple of 32"},
                 kRows, 96);
  expect_refused(spoil("awq_32"), {"awq_32", "shape"}, 12);
  expect_refused(spoil("gptq_64"), {"gptq_64", "[12, 128]", "multiples of 8"}, 12);
  expect_refused(spoil("nvfp4"), {"nvfp4", "120 columns", "multiple of 16"}, kRows, 120);

  BadCase bad = spoil("gptq_act_order");
  bad.tensor(".g_idx").set<int32_t>(5, 4);
  expect_refused(std::move(bad), {"gptq_act_order.g_idx", "column 5", "group 4", "0 to 3"});
  bad = spoil("gptq_act_order");
  bad.tensor(".g_idx").set<int32_t>(5, -1);
  expect_refused(std::move(bad), {"gptq_act_order.g_idx", "group -1"});
  bad = spoil("packed_act_order");
  for (size_t i = 0; i < 40; ++i) bad.tensor(".weight_g_idx").set<int32_t>(i, 1);
  expect_refused(std::move(bad), {"packed_act_order.weight_g_idx", "expected 32 in each"});
  bad = spoil("packed_32");
  bad.tensor(".weight_shape").set<int64_t>(1, 64);
  expect_refused(std::move(bad), {"packed_32.weight_shape", "[24, 64]", "[24, 128]"});
}

TEST(BadFourBitCheckpoint, UnsupportedConfigurationsAreNamed) {
  const auto expect_config_refused = [](const std::string& config, const char* word) {
    const auto scheme =
        make_scheme(Json{{"quantization_config", *parse_json(config, "test")}}, "config.json");
    ASSERT_FALSE(scheme) << config;
    EXPECT_NE(scheme.error().message.find(word), std::string::npos) << scheme.error().message;
    EXPECT_NE(scheme.error().message.find("config.json"), std::string::npos);
  };
  expect_config_refused(R"({"quant_method": "gptq", "bits": 3, "group_size": 128})", "bits");
  expect_config_refused(R"({"quant_method": "gptq", "bits": 4, "group_size": -2})", "group_size");
  expect_config_refused(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})",
                        "marlin");
  expect_config_refused(R"({"quant_method": "awq", "bits": 8})", "bits");
  expect_config_refused(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})", "gemv");
  expect_config_refused(R"({"quant_method": "auto-round", "bits": 4, "packing_format": "itrex"})",
                        "itrex");
  expect_config_refused(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})", "W4A8_AWQ");
  expect_config_refused(R"({"quant_method": "compressed-tensors"})", "config_groups");
  expect_config_refused(packed_config(R"({"num_bits": 3, "group_size": 32})"), "num_bits");
  expect_config_refused(packed_config(R"({"num_bits": 4, "strategy": "block"})"), "block");
  expect_config_refused(packed_config(R"({"num_bits": 4})"), "group_size");
  expect_config_refused(
      R"({"quant_method": "compressed-tensors", "format": "marlin-24",
          "config_groups": {"a": {"weights": {}}}})",
      "marlin-24");
  expect_config_refused(
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
          "a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}}})",
      "config group b");
}

}  // namespace
}  // namespace tw
