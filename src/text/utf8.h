// Where a string stops being valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tw {

// The index of the first byte that begins no well-formed sequence (Unicode, table 3-7: no
// overlong forms, no surrogates, at most U+10FFFF); none when all is valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Appends a character; false, and nothing appended, for surrogates and above U+10FFFF.
bool append_utf8(uint32_t code_point, std::string& text);

}  // namespace tw
