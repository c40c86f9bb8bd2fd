// One .safetensors file: an 8-byte header length, a JSON header, then the tensors' bytes.
// Format: huggingface/safetensors, README "Format".
#pragma once

#include <filesystem>
#include <vector>

#include "core/mapped_file.h"
#include "core/status.h"
#include "weights/checkpoint.h"

namespace tw {

class SafetensorsFile {
 public:
  // Fails with corrupt_data or unsupported, naming the file and the tensor. As the format demands,
  // the tensors must fill the file without holes and overlaps.
  static Expected<SafetensorsFile> open(const std::filesystem::path& path);

  const MappedFile& file() const { return file_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

 private:
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace tw
