// Writes a model as safetensors: one file, or shards with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "weights/checkpoint.h"

namespace tw {

// A tensor as a file will hold it; `type` is a plain one.
struct WrittenTensor {
  std::string name;
  StorageType type = StorageType::bf16;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

// Tensors that are made together, and lie together in one file. Their bytes come into being as they
// are written, so that memory stays small whatever the model's size.
class SafetensorsPart {
 public:
  explicit SafetensorsPart(std::vector<WrittenTensor> tensors) : tensors_(std::move(tensors)) {}
  virtual ~SafetensorsPart() = default;

  const std::vector<WrittenTensor>& tensors() const { return tensors_; }
  uint64_t bytes() const;
  // Appends the bytes of all tensors, in order.
  virtual Status write(std::ostream& file) const = 0;

 private:
  std::vector<WrittenTensor> tensors_;
};

using SafetensorsParts = std::vector<std::unique_ptr<SafetensorsPart>>;

// The tensor decoded, in Hugging Face's row order, rounded to bf16. It must outlive the part.
// Integer tensors are unsupported.
Expected<std::unique_ptr<SafetensorsPart>> make_bf16_part(const StoredTensor& tensor);
// The tensor of a safetensors checkpoint as it is. It must outlive the part.
std::unique_ptr<SafetensorsPart> make_copied_part(const StoredTensor& tensor);

struct SafetensorsWriteOptions {
  uint64_t max_shard_bytes = uint64_t{5} << 30;
  std::function<void(int64_t bytes)> on_progress;  // bytes written; may be empty
};

Status write_safetensors(const std::filesystem::path& folder, const SafetensorsParts& parts,
                         const SafetensorsWriteOptions& options);

}  // namespace tw
