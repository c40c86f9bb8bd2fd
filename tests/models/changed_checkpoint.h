// Another checkpoint with a different configuration, and its tensors under other names.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/tokenizer_source.h"

namespace tw::testing_support {

class ChangedCheckpoint final : public Checkpoint {
 public:
  using Rename = std::function<std::string(const std::string&)>;

  ChangedCheckpoint(const Checkpoint& whole, Json config, const Rename& rename = nullptr)
      : whole_(whole), config_(std::move(config)) {
    for (StoredTensor tensor : whole.tensors()) {
      if (rename) tensor.name = rename(tensor.name);
      tensors_.push_back(std::move(tensor));
    }
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
  std::vector<StoredTensor> tensors_;
};

}  // namespace tw::testing_support
