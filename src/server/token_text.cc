#include "server/token_text.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tw {
namespace {

// Byte-level BPE spells each byte as a character: printable Latin-1 as itself, the others as
// U+0100 and up, in order. The inverse, by code point; -1 where none.
std::array<int, 324> make_byte_of_code_point() {
  std::array<int, 324> bytes;
  bytes.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174);
    bytes[static_cast<size_t>(printable ? byte : next++)] = byte;
  }
  return bytes;
}

std::optional<std::string> byte_level_bytes(const std::string& spelling) {
  static const std::array<int, 324> kByteOf = make_byte_of_code_point();
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const auto lead = static_cast<uint8_t>(spelling[i]);
    uint32_t code_point = lead;
    if (lead >= 0x80) {
      if ((lead & 0xE0) != 0xC0 || i + 1 >= spelling.size()) return std::nullopt;
      code_point = (lead & 0x1Fu) << 6 | (static_cast<uint8_t>(spelling[i + 1]) & 0x3Fu);
      ++i;
    }
    ++i;
    if (code_point >= kByteOf.size() || kByteOf[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf[code_point]));
  }
  return bytes;
}

// SentencePiece's byte tokens: <0xE2>.
std::optional<std::string> byte_fallback(const std::string& spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling.back() != '>') {
    return std::nullopt;
  }
  return std::string(1, static_cast<char>(std::stoi(spelling.substr(3, 2), nullptr, 16)));
}

}  // namespace

TokenText token_text(const Tokenizer& tokenizer, TokenId id) {
  const auto spelling = tokenizer.id_to_token(id);
  if (!spelling) return {};
  if (tokenizer.is_special(id)) return {*spelling, *spelling};
  constexpr std::string_view kSpace = "\xE2\x96\x81";  // SentencePiece's U+2581
  if (spelling->starts_with(kSpace)) {
    // Decoding it alone would drop the space.
    std::string text;
    for (size_t i = 0; i < spelling->size();) {
      const bool space = std::string_view(*spelling).substr(i).starts_with(kSpace);
      text += space ? ' ' : (*spelling)[i];
      i += space ? kSpace.size() : 1;
    }
    return {text, text};
  }
  const TokenId ids[] = {id};
  TokenText token{tokenizer.decode(ids, false).value_or(""), std::nullopt};
  if (token.text.find("\xEF\xBF\xBD") == std::string::npos) {
    token.bytes = token.text;
  } else if (auto bytes = byte_fallback(*spelling)) {
    token.bytes = std::move(bytes);
  } else {
    token.bytes = byte_level_bytes(*spelling);
  }
  return token;
}

Json bytes_json(const TokenText& token) {
  if (!token.bytes) return nullptr;
  Json bytes = Json::array();
  for (const char byte : *token.bytes) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

double finite_logprob(float logprob) {
  return logprob > -9999.0f ? logprob : -9999.0;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace tw
