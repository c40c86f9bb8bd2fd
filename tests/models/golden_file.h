// Reads the golden files under tests/models/golden; tools/golden/make_model_golden.py says what is
// in them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>

#include "core/tensor.h"
#include "weights/safetensors_file.h"

namespace tw::testing_support {

inline std::filesystem::path golden_folder() {
  return std::filesystem::path(TW_SOURCE_DIR) / "tests/models/golden";
}

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name)
      : path_(golden_folder() / (name + ".safetensors")), file_(SafetensorsFile::open(path_)) {
    EXPECT_TRUE(file_) << (file_ ? "" : file_.error().message);
  }

  bool is_open() const { return file_.has_value(); }

  std::span<const int32_t> integers(const std::string& name) const {
    return values<int32_t>(name, StorageType::i32);
  }

  std::span<const float> floats(const std::string& name) const {
    return values<float>(name, StorageType::f32);
  }

  // A tensor of two dimensions or more as a matrix, all but the last folded into its rows.
  Matrix<const float> matrix(const std::string& name) const {
    const std::span<const float> all = floats(name);
    const StoredTensor* tensor = find(name);
    const int64_t cols = tensor == nullptr ? 1 : tensor->shape.back();
    return dense_matrix(all.data(), static_cast<int64_t>(all.size()) / cols, cols);
  }

 private:
  const StoredTensor* find(const std::string& name) const {
    for (const StoredTensor& tensor : file_->tensors()) {
      if (tensor.name == name) return &tensor;
    }
    ADD_FAILURE() << path_ << " has no tensor " << name;
    return nullptr;
  }

  template <typename T>
  std::span<const T> values(const std::string& name, StorageType type) const {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr) return {};
    EXPECT_EQ(tensor->type, type) << path_ << ": " << name;
    return {reinterpret_cast<const T*>(tensor->data.data()), tensor->data.size() / sizeof(T)};
  }

  std::filesystem::path path_;
  Expected<SafetensorsFile> file_;
};

}  // namespace tw::testing_support
