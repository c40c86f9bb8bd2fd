// A checkpoint of tensors in memory, which a test can spoil.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/safetensors_file.h"
#include "weights/tokenizer_source.h"

namespace tw::testing_support {

struct MemoryTensor {
  std::string name;
  StorageType type;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  template <typename T>
  void set(size_t index, T value) {
    ASSERT_LE((index + 1) * sizeof(T), data.size());
    std::memcpy(data.data() + index * sizeof(T), &value, sizeof(T));
  }
};

// The tensors of a safetensors file.
inline std::vector<MemoryTensor> read_tensors(const std::filesystem::path& path) {
  std::vector<MemoryTensor> tensors;
  const auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file) << (file ? "" : file.error().message);
  if (!file) return tensors;
  for (const StoredTensor& tensor : file->tensors()) {
    tensors.push_back(
        {tensor.name, tensor.type, tensor.shape, {tensor.data.begin(), tensor.data.end()}});
  }
  return tensors;
}

class MemoryCheckpoint final : public Checkpoint {
 public:
  explicit MemoryCheckpoint(std::vector<MemoryTensor> tensors) : owned_(std::move(tensors)) {
    for (const MemoryTensor& tensor : owned_) {
      tensors_.push_back({tensor.name, tensor.type, tensor.shape, tensor.data});
    }
    const Status indexed = index_tensors();
    EXPECT_TRUE(indexed) << (indexed ? "" : indexed.error().message);
  }

  const std::filesystem::path& path() const override { return path_; }
  const char* container() const override { return "memory"; }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return empty_; }
  const Json& generation_config() const override { return empty_; }
  const Json& tokenizer_config() const override { return empty_; }
  std::optional<std::string> chat_template() const override { return std::nullopt; }
  Expected<TokenizerSource> tokenizer_source() const override {
    return error(ErrorCode::not_found, "no tokenizer");
  }
  void release(const StoredTensor&) const override {}

 private:
  std::vector<MemoryTensor> owned_;
  std::vector<StoredTensor> tensors_;
  std::filesystem::path path_ = "in-memory";
  Json empty_ = Json::object();
};

}  // namespace tw::testing_support
