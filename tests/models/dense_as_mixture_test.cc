// The real model as a mixture whose experts are all its own feed-forward network: whatever the
// router says, the output is the dense model's. So the path of experts is held to the dense one on
// real weights, in each kind of format.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "models/bf16_checkpoint.h"
#include "models/forward_runner.h"
#include "models/logit_error.h"
#include "models/real_model.h"

namespace tw {
namespace {

using testing_support::Bf16Checkpoint;
using testing_support::ForwardRunner;
using testing_support::largest_magnitude;
using testing_support::logit_error;
using testing_support::real_model_path;

constexpr int64_t kNumLayers = 2;
constexpr int64_t kNumExperts = 8;

// The first layers of a dense checkpoint, as Mixtral names them if `top_k` experts are chosen.
class FewLayers final : public Checkpoint {
 public:
  FewLayers(const Checkpoint& dense, int64_t top_k) : dense_(dense), config_(dense.config()) {
    config_["num_hidden_layers"] = kNumLayers;
    if (top_k > 0) {
      config_["architectures"] = {"MixtralForCausalLM"};
      config_["num_local_experts"] = kNumExperts;
      config_["num_experts_per_tok"] = top_k;
      make_router(config_["hidden_size"].get<int64_t>());
    }
    constexpr std::string_view kLayers = "model.layers.";
    for (const StoredTensor& tensor : dense.tensors()) {
      if (tensor.name.starts_with(kLayers) &&
          std::stoi(tensor.name.substr(kLayers.size())) >= kNumLayers) {
        continue;
      }
      const size_t mlp = tensor.name.find(".mlp.");
      if (top_k == 0 || mlp == std::string::npos) {
        tensors_.push_back(tensor);
        continue;
      }
      const std::string prefix = tensor.name.substr(0, mlp) + ".block_sparse_moe.";
      const std::string name = tensor.name.substr(mlp + 5);
      const char* part = name.starts_with("gate") ? "w1" : name.starts_with("up") ? "w3" : "w2";
      for (int64_t e = 0; e < kNumExperts; ++e) {
        StoredTensor copy = tensor;
        copy.name = fmt::format("{}experts.{}.{}.weight", prefix, e, part);
        tensors_.push_back(std::move(copy));
      }
      if (name.starts_with("gate")) {
        tensors_.push_back({prefix + "gate.weight",
                            StorageType::f32,
                            {kNumExperts, config_["hidden_size"].get<int64_t>()},
                            std::as_bytes(std::span(router_)),
                            RowOrder{}});
      }
    }
    EXPECT_TRUE(index_tensors());
  }

  const std::filesystem::path& path() const override { return dense_.path(); }
  const char* container() const override { return dense_.container(); }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return dense_.generation_config(); }
  const Json& tokenizer_config() const override { return dense_.tokenizer_config(); }
  std::optional<std::string> chat_template() const override { return std::nullopt; }
  Expected<TokenizerSource> tokenizer_source() const override { return dense_.tokenizer_source(); }
  void release(const StoredTensor&) const override {}

 private:
  void make_router(int64_t hidden_size) {
    for (int64_t i = 0; i < kNumExperts * hidden_size; ++i) {
      router_.push_back(std::sin(static_cast<float>(i * i % 10007)));
    }
  }

  const Checkpoint& dense_;
  Json config_;
  std::vector<float> router_;  // of all layers
  std::vector<StoredTensor> tensors_;
};

struct Form {
  const char* name;
  bool is_bf16;              // weights dequantized and rounded to bf16
  const char* quantization;  // of those, or null
  // Of rows of prompts, where they are to have kernels of their own.
  std::optional<kernels::ActivationPrecision> prefill_precision = {};
};

class DenseAsMixture : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(real_model_path())) {
      GTEST_SKIP() << real_model_path() << " is missing; run tools/setup.sh";
    }
    auto checkpoint = Checkpoint::open(real_model_path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    stored_ = std::move(*checkpoint);
  }

  std::vector<float> logits(const Checkpoint& checkpoint) {
    WeightLoader loader(checkpoint, team_,
                        {*usable_cpu_features(), kernels::ActivationPrecision::bf16});
    loader.prefill_precision = GetParam().prefill_precision;
    if (GetParam().quantization != nullptr) {
      loader.quantization = QuantizationOptions{GetParam().quantization};
    }
    auto model = load_model(loader);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    if (!model) return {};
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 16; ++i) tokens.push_back((i * 3701 + 11) % 49000);
    // In chunks, whose first rows count as generated.
    ForwardRunner runner(**model, 16, 8);
    runner.num_generated_tokens = 3;
    return runner.run(tokens);
  }

  ThreadTeam team_{2};
  std::unique_ptr<Checkpoint> stored_;
};

TEST_P(DenseAsMixture, ComputesWhatTheDenseModelDoes) {
  const FewLayers few(*stored_, 0);
  std::unique_ptr<Checkpoint> rounded;
  if (GetParam().is_bf16) rounded = std::make_unique<Bf16Checkpoint>(few);
  const Checkpoint& dense = rounded ? *rounded : *stored_;
  const std::vector<float> expected = logits(FewLayers(dense, 0));
  ASSERT_FALSE(expected.empty());

  // One expert has the weight 1, exactly.
  EXPECT_EQ(logits(FewLayers(dense, 1)), expected);

  // The weights of two add up to 1 but for a rounding, which may tip over others behind it.
  const std::vector<float> two = logits(FewLayers(dense, 2));
  ASSERT_EQ(two.size(), expected.size());
  EXPECT_LT(logit_error(two, expected, largest_magnitude(expected)).relative, 5e-3);
}

INSTANTIATE_TEST_SUITE_P(Forms, DenseAsMixture,
                         ::testing::Values(Form{"q4_1", false, nullptr},
                                           Form{"prompts_of_their_own", false, nullptr,
                                                kernels::ActivationPrecision::f32},
                                           Form{"bf16", true, nullptr},
                                           Form{"int8", true, "w8a8_int8"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tw
