#include "weights/checkpoint.h"

#include "weights/gguf_checkpoint.h"
#include "weights/hugging_face_checkpoint.h"
#include "weights/tokenizer_source.h"

namespace tw {

namespace fs = std::filesystem;

Expected<std::unique_ptr<Checkpoint>> Checkpoint::open(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (!fs::exists(status)) {
    return error(ErrorCode::not_found,
                 "{}: no such file or folder; give a .gguf file or a folder with config.json and "
                 "safetensors",
                 path.string());
  }
  if (fs::is_directory(status)) return open_hugging_face_checkpoint(path);
  return open_gguf_checkpoint(path);
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second;
}

Expected<const StoredTensor*> Checkpoint::require(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return tensor;
  return error(ErrorCode::corrupt_data, "{}: tensor {} is missing", path().string(), name);
}

Status Checkpoint::index_tensors() {
  for (const StoredTensor& tensor : tensors()) {
    if (!index_.emplace(tensor.name, &tensor).second) {
      return error(ErrorCode::corrupt_data, "{}: tensor {} appears twice", path().string(),
                   tensor.name);
    }
  }
  return {};
}

}  // namespace tw
