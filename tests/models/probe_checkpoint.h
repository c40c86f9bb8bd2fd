// A checkpoint whose model answers with its hidden state instead of logits: the first layers of
// another checkpoint, then a norm of ones and an output matrix that is the identity (with rows of
// zeros below). So the residual stream behind any layer is seen through the ordinary interface.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/tokenizer_source.h"

namespace tw::testing_support {

class ProbeCheckpoint final : public Checkpoint {
 public:
  ProbeCheckpoint(const Checkpoint& whole, int64_t num_layers)
      : whole_(whole), config_(whole.config()) {
    config_["num_hidden_layers"] = num_layers;
    if (config_.contains("layer_types")) {
      Json& types = config_["layer_types"];
      types.erase(types.begin() + num_layers, types.end());
    }
    config_["final_logit_softcapping"] = nullptr;
    config_["tie_word_embeddings"] = false;
    const int64_t vocab_size = config_["vocab_size"].get<int64_t>();
    const int64_t hidden_size = config_["hidden_size"].get<int64_t>();
    // The norms of Gemma and of Qwen's hybrids are stored minus one.
    const std::string architecture = config_["architectures"][0].get<std::string>();
    const bool is_minus_one = architecture.starts_with("Gemma") ||
                              architecture.starts_with("Qwen3Next") ||
                              architecture.starts_with("Qwen3_5");
    norm_.assign(static_cast<size_t>(hidden_size), is_minus_one ? 0.0f : 1.0f);
    identity_.assign(static_cast<size_t>(vocab_size * hidden_size), 0);
    for (int64_t i = 0; i < hidden_size; ++i) {
      identity_[static_cast<size_t>(i * hidden_size + i)] = 0x3f80;  // 1.0 in bf16
    }
    for (const StoredTensor& tensor : whole.tensors()) {
      if (tensor.name != "model.norm.weight" && tensor.name != "lm_head.weight") {
        tensors_.push_back(tensor);
      }
    }
    tensors_.push_back({"model.norm.weight",
                        StorageType::f32,
                        {hidden_size},
                        std::as_bytes(std::span(norm_)),
                        {}});
    tensors_.push_back({"lm_head.weight",
                        StorageType::bf16,
                        {vocab_size, hidden_size},
                        std::as_bytes(std::span(identity_)),
                        {}});
    const Status indexed = index_tensors();
    EXPECT_TRUE(indexed) << (indexed ? "" : indexed.error().message);
  }

  const std::filesystem::path& path() const override { return whole_.path(); }
  const char* container() const override { return whole_.container(); }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return whole_.generation_config(); }
  const Json& tokenizer_config() const override { return whole_.tokenizer_config(); }
  std::optional<std::string> chat_template() const override { return std::nullopt; }
  Expected<TokenizerSource> tokenizer_source() const override { return whole_.tokenizer_source(); }
  void release(const StoredTensor&) const override {}

 private:
  const Checkpoint& whole_;
  Json config_;
  std::vector<float> norm_;
  std::vector<uint16_t> identity_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace tw::testing_support
