// A folder that `tilewright quantize` writes computes what the model does when it is quantized
// while it is loaded, bit for bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/forward_runner.h"
#include "models/registry.h"
#include "models/test_name.h"
#include "weights/gguf_writer.h"
#include "weights/quantize/quantized_model.h"

namespace tw {
namespace {

using testing_support::ForwardRunner;
using testing_support::TemporaryFolder;

struct Case {
  const char* model;
  QuantizationOptions quantization;
};

std::string name_of(const Case& test) {
  return testing_support::test_name(
      fmt::format("{}_{}_{}", test.model, test.quantization.name, test.quantization.group_size));
}

class QuantizedFolder : public ::testing::TestWithParam<Case> {
 protected:
  std::vector<float> logits(const Checkpoint& checkpoint,
                            std::optional<QuantizationOptions> quantization) {
    WeightLoader loader(checkpoint, team_,
                        {*usable_cpu_features(), kernels::ActivationPrecision::bf16});
    loader.quantization = std::move(quantization);
    auto model = load_model(loader);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    if (!model) return {};
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 24; ++i) tokens.push_back((i * 37 + i * i) % 250);
    ForwardRunner runner(**model, 32, 32);
    return runner.run(tokens);
  }

  ThreadTeam team_{2};
};

TEST_P(QuantizedFolder, EqualsTheModelQuantizedAtLoad) {
  const auto path = std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / GetParam().model;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is missing; run tools/proxy/make_proxy.py --tests";
  }
  const auto original = Checkpoint::open(path);
  ASSERT_TRUE(original) << original.error().message;
  const auto model = plan_quantized_model(**original, GetParam().quantization, team_);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_GT(model->num_modules, 0);

  const TemporaryFolder folder("quantized_folder");
  SafetensorsWriteOptions options;
  options.max_shard_bytes = 40'000;
  ASSERT_TRUE(write_safetensors(folder.path(), model->parts, options));
  folder.write("config.json", dump_json(model->config));
  const auto written = Checkpoint::open(folder.path());
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_GT((*written)->tensors().size(), (*original)->tensors().size());

  const std::vector<float> expected = logits(**original, GetParam().quantization);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits(**written, std::nullopt), expected);
  EXPECT_NE(logits(**original, std::nullopt), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, QuantizedFolder,
    ::testing::Values(Case{"tiny-llama-4bit", {"w8a8_int8"}}, Case{"tiny-llama-4bit", {"fp8"}},
                      Case{"tiny-llama-4bit", {"int4", 32}}, Case{"tiny-llama-4bit", {"mxfp4"}},
                      Case{"tiny-llama-4bit", {"nvfp4"}}, Case{"tiny-mixtral", {"w8a8_int8"}},
                      Case{"tiny-deepseek-v3", {"fp8"}}),
    [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace tw
