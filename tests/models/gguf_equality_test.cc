// A model as a GGUF file computes what it computes as a Hugging Face folder, bit for bit: the
// names, the metadata, the order of rows and the weights of norms mean the same. The files are
// written as llama.cpp's converters would (tools/proxy/gguf_files.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "models/forward_runner.h"
#include "models/registry.h"

namespace tw {
namespace {

using testing_support::ForwardRunner;

std::filesystem::path models_folder() {
  return std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models";
}

std::vector<float> logits_of(const std::filesystem::path& path) {
  const auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().message);
  if (!checkpoint) return {};
  ThreadTeam team(2);
  auto model =
      load_model({**checkpoint, team, {*usable_cpu_features(), kernels::ActivationPrecision::f32}});
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  if (!model) return {};
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 60; ++i) tokens.push_back((i * 37 + i * i) % 250);
  ForwardRunner runner(**model, 64, 64);
  return runner.run(tokens);
}

TEST(GgufEquality, EveryFileComputesWhatItsFolderDoes) {
  int num_files = 0;
  if (!std::filesystem::exists(models_folder())) {
    GTEST_SKIP() << models_folder() << " is missing; run tools/proxy/make_proxy.py --tests";
  }
  for (const auto& entry : std::filesystem::directory_iterator(models_folder())) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path().string());
    // Behind a plus stands what is special about a file.
    const std::string stem = entry.path().stem().string();
    const std::filesystem::path folder = models_folder() / stem.substr(0, stem.find('+'));
    const std::vector<float> expected = logits_of(folder);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(logits_of(entry.path()), expected);
    ++num_files;
  }
  EXPECT_GE(num_files, 19);
}

}  // namespace
}  // namespace tw
