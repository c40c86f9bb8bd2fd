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
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "weights/storage_type.h"

namespace tw {

// A tensor as it lies in the mapped file. Shape is outermost first ([N, K] for a linear layer's
// weight). `data` is bounds-checked: its size is what type and shape demand.
struct StoredTensor {
  std::string name;
  StorageType type = StorageType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
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

  // Tells the system that the tensor's pages can leave memory (it was packed).
  virtual void release(const StoredTensor& tensor) const = 0;
};

}  // namespace tw
