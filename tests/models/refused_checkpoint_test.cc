// A checkpoint with a fault in its last layer is refused before anything is packed, by name.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "models/registry.h"
#include "weights/gguf_writer.h"
#include "weights/memory_checkpoint.h"

namespace tw {
namespace {

using testing_support::MemoryTensor;
using testing_support::read_tensors;
using testing_support::TemporaryFolder;

// A folder of the tests whose tensors and configuration can be spoilt.
class SpoiltFolder final : public Checkpoint {
 public:
  using Spoil = std::function<void(std::vector<MemoryTensor>&, Json& config)>;

  SpoiltFolder(const std::filesystem::path& folder, const Spoil& spoil)
      : whole_(*Checkpoint::open(folder)), config_(whole_->config()) {
    auto tensors = read_tensors(folder / "model.safetensors");
    if (spoil) spoil(tensors, config_);
    memory_ = std::make_unique<testing_support::MemoryCheckpoint>(std::move(tensors));
    tensors_.assign(memory_->tensors().begin(), memory_->tensors().end());
    EXPECT_TRUE(index_tensors());
  }

  const std::filesystem::path& path() const override { return whole_->path(); }
  const char* container() const override { return whole_->container(); }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return whole_->generation_config(); }
  const Json& tokenizer_config() const override { return whole_->tokenizer_config(); }
  std::optional<std::string> chat_template() const override { return std::nullopt; }
  Expected<TokenizerSource> tokenizer_source() const override { return whole_->tokenizer_source(); }
  void release(const StoredTensor&) const override {}

 private:
  std::unique_ptr<Checkpoint> whole_;
  Json config_;
  std::unique_ptr<testing_support::MemoryCheckpoint> memory_;
  std::vector<StoredTensor> tensors_;
};

struct Case {
  const char* name;
  const char* model;
  SpoiltFolder::Spoil spoil;
  std::vector<const char*> words;  // of the error
};

void PrintTo(const Case& test, std::ostream* out) {
  *out << test.name;
}

MemoryTensor& tensor_of(std::vector<MemoryTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &MemoryTensor::name);
  EXPECT_NE(found, tensors.end()) << name;
  return *found;
}

SpoiltFolder::Spoil remove(const std::string& name) {
  return [name](std::vector<MemoryTensor>& tensors, Json&) {
    EXPECT_EQ(std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; }), 1u);
  };
}

template <typename T>
SpoiltFolder::Spoil set(const std::string& name, size_t index, T value) {
  return [=](std::vector<MemoryTensor>& tensors, Json&) {
    tensor_of(tensors, name).set(index, value);
  };
}

const std::string kLast = "model.layers.1.";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Case kCases[] = {
    {"a_tensor_is_missing",
     "tiny-llama-4bit",
     remove(kLast + "mlp.down_proj.weight"),
     {"model.layers.1.mlp.down_proj.weight is missing"}},
    {"a_norm_is_missing",
     "tiny-llama-4bit",
     remove("model.norm.weight"),
     {"model.norm.weight is missing"}},
    {"an_expert_is_missing",
     "tiny-mixtral",
     remove(kLast + "block_sparse_moe.experts.7.w2.weight"),
     {"experts.7.w2.weight is missing"}},
    {"latents_are_missing",
     "tiny-kimi-k2",
     remove(kLast + "self_attn.kv_b_proj.weight"),
     {"model.layers.1.self_attn.kv_b_proj.weight is missing"}},
    {"int4_scales_are_missing",
     "tiny-llama-4bit-int4",
     remove(kLast + "mlp.down_proj.weight_scale"),
     {"model.layers.1.mlp.down_proj.weight_scale is missing"}},
    {"fp8_scales_are_missing",
     "tiny-llama-4bit-fp8-block",
     remove(kLast + "self_attn.q_proj.weight_scale_inv"),
     {"model.layers.1.self_attn.q_proj.weight_scale_inv is missing"}},
    {"mxfp4_expert_scales_are_missing",
     "tiny-gpt-oss-mxfp4",
     remove("model.layers.2.mlp.experts.down_proj_scales"),
     {"model.layers.2.mlp.experts.down_proj_scales is missing"}},
    {"a_scale_is_no_number",
     "tiny-llama-4bit-fp8-channel",
     set(kLast + "mlp.down_proj.weight_scale", 5, kNan),
     {"model.layers.1.mlp.down_proj.weight_scale", "nan"}},
    {"an_expert_scale_is_no_number",
     "tiny-gpt-oss-mxfp4",
     set("model.layers.2.mlp.experts.gate_up_proj_scales", 7, uint8_t{255}),
     {"model.layers.2.mlp.experts.gate_up_proj_scales", "nan"}},
    {"groups_do_not_divide",
     "tiny-llama-4bit-int4",
     [](std::vector<MemoryTensor>&, Json& config) {
       config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 64;
     },
     {"96 columns in groups of 64", "divides"}},
    {"the_method_is_unknown",
     "tiny-llama-4bit-int4",
     [](std::vector<MemoryTensor>&, Json& config) {
       config["quantization_config"] = {{"quant_method", "unheard-of"}};
     },
     {"unheard-of", "compressed-tensors"}},
    {"the_format_is_unknown",
     "tiny-llama-4bit-int4",
     [](std::vector<MemoryTensor>&, Json& config) {
       config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 3;
     },
     {"num_bits", "3"}},
    {"the_output_matrix_is_missing",
     "tiny-llama-4bit",
     remove("lm_head.weight"),
     {"lm_head.weight is missing", "tie_word_embeddings"}},
    {"the_output_matrix_is_no_copy",
     "tiny-llama-4bit",
     [](std::vector<MemoryTensor>&, Json& config) { config["tie_word_embeddings"] = true; },
     {"tie_word_embeddings", "lm_head.weight", "not a copy"}},
};

class RefusedCheckpoint : public ::testing::TestWithParam<Case> {
 protected:
  static Status load(const Checkpoint& checkpoint, int64_t& packed_bytes) {
    ThreadTeam team(2);
    WeightLoader loader(checkpoint, team,
                        {*usable_cpu_features(), kernels::ActivationPrecision::bf16,
                         [&](int64_t bytes) { packed_bytes += bytes; }});
    const auto model = load_model(loader);
    if (!model) return tl::unexpected(model.error());
    return {};
  }
};

TEST_P(RefusedCheckpoint, IsNamedBeforeAnythingIsPacked) {
  const auto folder =
      std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models" / GetParam().model;
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << folder << " is missing; run tools/proxy/make_proxy.py --tests";
  }
  int64_t packed_bytes = 0;
  const Status sound = load(SpoiltFolder(folder, nullptr), packed_bytes);
  ASSERT_TRUE(sound) << sound.error().message;
  EXPECT_GT(packed_bytes, 0);

  packed_bytes = 0;
  const Status status = load(SpoiltFolder(folder, GetParam().spoil), packed_bytes);
  ASSERT_FALSE(status);
  for (const char* word : GetParam().words) {
    EXPECT_NE(status.error().message.find(word), std::string::npos)
        << status.error().message << "\nlacks " << word;
  }
  EXPECT_NE(status.error().message.find(GetParam().model), std::string::npos);
  EXPECT_EQ(packed_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Faults, RefusedCheckpoint, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// A copy of the embeddings beside tie_word_embeddings is what some exporters leave.
TEST(TiedEmbeddings, ACopyIsAccepted) {
  const auto folder = std::filesystem::path(TW_SOURCE_DIR) / ".cache/test-models/tiny-llama-4bit";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "run tools/proxy/make_proxy.py --tests";
  const SpoiltFolder copied(folder, [](std::vector<MemoryTensor>& tensors, Json& config) {
    config["tie_word_embeddings"] = true;
    tensor_of(tensors, "lm_head.weight").data =
        tensor_of(tensors, "model.embed_tokens.weight").data;
  });
  ThreadTeam team(2);
  const auto model = load_model(
      WeightLoader(copied, team, {*usable_cpu_features(), kernels::ActivationPrecision::bf16}));
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
}

}  // namespace
}  // namespace tw
