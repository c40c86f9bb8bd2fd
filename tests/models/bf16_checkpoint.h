// Another checkpoint with all its weights dequantized and rounded to bf16, in Hugging Face's row
// order: a quantized real model for the bf16 kernels.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/dtype.h"
#include "weights/checkpoint.h"
#include "weights/tokenizer_source.h"

namespace tw::testing_support {

class Bf16Checkpoint final : public Checkpoint {
 public:
  explicit Bf16Checkpoint(const Checkpoint& stored) : stored_(stored) {
    weights_.reserve(stored.tensors().size());
    for (const StoredTensor& tensor : stored.tensors()) {
      const int64_t rows = tensor.shape.size() > 1 ? tensor.shape.front() : 1;
      const int64_t columns = tensor.shape.back();
      const StorageTypeTraits& type = traits(tensor.type);
      const int64_t row_bytes = columns / type.block_elements * type.block_bytes;
      std::vector<float> row(static_cast<size_t>(columns));
      std::vector<bf16_t>& values = weights_.emplace_back();
      values.reserve(static_cast<size_t>(rows * columns));
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = tensor.row_order.stored_row(r, rows) * row_bytes;
        dequantize(tensor.type, tensor.data.data() + at, columns, row.data());
        for (const float value : row) values.push_back(to_bf16(value));
      }
      tensors_.push_back({tensor.name, StorageType::bf16, tensor.shape,
                          std::as_bytes(std::span(values)), RowOrder{}});
    }
    const Status indexed = index_tensors();
    EXPECT_TRUE(indexed) << (indexed ? "" : indexed.error().message);
  }

  const std::filesystem::path& path() const override { return stored_.path(); }
  const char* container() const override { return stored_.container(); }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return stored_.config(); }
  const Json& generation_config() const override { return stored_.generation_config(); }
  const Json& tokenizer_config() const override { return stored_.tokenizer_config(); }
  std::optional<std::string> chat_template() const override { return stored_.chat_template(); }
  Expected<TokenizerSource> tokenizer_source() const override { return stored_.tokenizer_source(); }
  void release(const StoredTensor&) const override {}

 private:
  const Checkpoint& stored_;
  std::vector<std::vector<bf16_t>> weights_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace tw::testing_support
