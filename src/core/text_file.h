// Whole files of text.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tw {

// The file's bytes as they are, or nothing where it cannot be read; the caller knows what to say of
// it (an option, an adapter's folder).
std::optional<std::string> read_text_file(const std::filesystem::path& path);

}  // namespace tw
