// A model on disk, whatever its container: named tensors, configuration, tokenizer, template.
//
// Two containers implement it: a Hugging Face folder (safetensors, single or sharded) and GGUF
// (single or split). Both name tensors as Hugging Face does ("model.layers.0.self_attn.q_proj.
// weight"), so that a model family asks for one name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "weights/storage_type.h"

namespace tw {

// The order of a matrix's rows (or a bias's elements) in the file. GGUF stores the query and key
// projections of the Llama family with the two halves of each head interleaved, for a rotation of
// neighbouring pairs, and so do GLM's checkpoints; this engine rotates halves.
struct RowOrder {
  int64_t interleaved_heads = 0;  // 0: rows lie in their own order
  int64_t rotary_dim = 0;         // rows of each head that are interleaved; 0: all

  // Where row `row` (of `num_rows`, in the order of halves) lies in the file.
  int64_t stored_row(int64_t row, int64_t num_rows) const {
    if (interleaved_heads == 0) return row;
    const int64_t head_dim = num_rows / interleaved_heads;
    const int64_t half = (rotary_dim == 0 ? head_dim : rotary_dim) / 2;
    const int64_t within = row % head_dim;
    if (within >= 2 * half) return row;
    return row - within + 2 * (within % half) + within / half;
  }
};

// A tensor as it lies in the mapped file. Shape is outermost first ([N, K] for a linear layer's
// weight). `data` is bounds-checked: its size is what type and shape demand.
struct StoredTensor {
  std::string name;
  StorageType type = StorageType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
  RowOrder row_order = {};
};

// Where a tokenizer comes from: one of the two is set.
struct TokenizerSource;

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // `path`: a .gguf file, or a folder with config.json and safetensors. Reads headers only.
  static Expected<std::unique_ptr<Checkpoint>> open(const std::filesystem::path& path);

  virtual const std::filesystem::path& path() const = 0;
  virtual const char* container() const = 0;  // "GGUF v3", "safetensors"

  // All tensors, in file order, under their Hugging Face names.
  virtual std::span<const StoredTensor> tensors() const = 0;
  // Null when absent.
  const StoredTensor* find(std::string_view name) const;
  // The tensor, or not_found naming it and the file.
  Expected<const StoredTensor*> require(std::string_view name) const;

  // config.json; for GGUF, the same fields derived from the metadata.
  virtual const Json& config() const = 0;
  // generation_config.json's content or an empty object.
  virtual const Json& generation_config() const = 0;
  // tokenizer_config.json's content (special tokens, chat_template removed) or derived from GGUF.
  virtual const Json& tokenizer_config() const = 0;
  virtual std::optional<std::string> chat_template() const = 0;
  virtual Expected<TokenizerSource> tokenizer_source() const = 0;

  // Tells the system that the tensor's pages can leave memory (it was packed). `tensor` is one of
  // tensors().
  virtual void release(const StoredTensor& tensor) const = 0;

 protected:
  // Fills the index that find() uses; for the containers, once tensors() is final. Two tensors of
  // one name are corrupt_data.
  Status index_tensors();

 private:
  std::unordered_map<std::string_view, const StoredTensor*> index_;
};

}  // namespace tw
