#include "core/text_file.h"

#include <fstream>
#include <sstream>

namespace tw {

std::optional<std::string> read_text_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::stringstream text;
  // Of an empty file nothing is written, which a stream takes for a failure of its own.
  text << file.rdbuf();
  if (file.bad()) return std::nullopt;
  return std::move(text).str();
}

}  // namespace tw
