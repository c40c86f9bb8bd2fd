// One GGUF file (version 2 or 3, little endian): its metadata and tensors, bounds-checked.
// Format: ggml's docs/gguf.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/mapped_file.h"
#include "core/status.h"
#include "weights/checkpoint.h"

namespace tw {

struct GgufArray;
using GgufValue =
    std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<GgufArray>>;
struct GgufArray {
  std::vector<GgufValue> items;
};

class GgufFile {
 public:
  // Fails with corrupt_data or unsupported, naming the file and what is wrong in it.
  static Expected<GgufFile> open(const std::filesystem::path& path);

  uint32_t version() const { return version_; }
  const MappedFile& file() const { return file_; }
  // Under GGUF's own names ("blk.0.attn_q.weight"), in file order.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  const GgufValue* find(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  const GgufArray* array(std::string_view key) const;

 private:
  MappedFile file_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<StoredTensor> tensors_;
};

// Values of any integer type that fit; nothing for other types.
std::optional<int64_t> as_integer(const GgufValue& value);
std::optional<double> as_number(const GgufValue& value);

}  // namespace tw
