#include "core/text_file.h"

#include <array>
#include <fstream>

namespace tw {

std::optional<std::string> read_text_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> piece;
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
  }
  // A folder opens like a file and fails when it is read.
  if (!file.is_open() || file.bad()) return std::nullopt;
  return text;
}

}  // namespace tw
