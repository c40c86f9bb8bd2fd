// Writes a model as safetensors in bf16: one file, or shards with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "core/status.h"
#include "weights/checkpoint.h"

namespace tw {

struct SafetensorsWriteOptions {
  uint64_t max_shard_bytes = uint64_t{5} << 30;
  std::function<void(int64_t bytes)> on_progress;  // bytes written; may be empty
};

// Every tensor, decoded, in Hugging Face's row order, rounded to bf16. Streams row by row: memory
// stays small whatever the model's size. Integer tensors are unsupported.
Status write_safetensors(const std::filesystem::path& folder,
                         std::span<const StoredTensor* const> tensors,
                         const SafetensorsWriteOptions& options);

// Bytes that the tensor takes in bf16.
uint64_t bf16_bytes(const StoredTensor& tensor);

}  // namespace tw
