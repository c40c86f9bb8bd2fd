#include "text/golden_data.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "core/check.h"

namespace tw::test {
namespace {

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

const std::filesystem::path kRoot = TW_SOURCE_DIR;

}  // namespace

const Json& read_golden(std::string_view name) {
  static std::map<std::string, Json, std::less<>> read;
  const auto found = read.find(name);
  if (found != read.end()) return found->second;
  const auto text = read_file(kRoot / "tests/text/golden" / name);
  TW_CHECK(text.has_value());
  auto json = parse_json(*text, name);
  TW_CHECK(json.has_value());
  return read.emplace(name, std::move(*json)).first->second;
}

std::optional<std::string> read_asset(std::string_view tokenizer, std::string_view file) {
  return read_file(kRoot / ".cache/tokenizers" / tokenizer / file);
}

bool missing_assets_allowed() {
  return std::getenv("TW_ALLOW_MISSING_ASSETS") != nullptr;
}

const Tokenizer* cached_tokenizer(const std::string& name) {
  static std::map<std::string, std::optional<Tokenizer>> tokenizers;
  const auto [entry, added] = tokenizers.try_emplace(name);
  if (added) {
    if (const auto json = read_asset(name, "tokenizer.json")) {
      auto tokenizer = Tokenizer::from_json(*json, name);
      TW_CHECK(tokenizer.has_value());
      entry->second = std::move(*tokenizer);
    }
  }
  return entry->second ? &*entry->second : nullptr;
}

std::string hash_ids(const std::vector<int32_t>& ids) {
  uint64_t value = 0xcbf29ce484222325;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      value = (value ^ ((static_cast<uint32_t>(id) >> shift) & 0xff)) * 0x100000001b3;
    }
  }
  return fmt::format("{:016x}", value);
}

std::string long_text(const Json& texts) {
  std::string once;
  for (const auto& [name, text] : texts.items()) {
    if (name != texts.begin().key()) once += '\n';
    once += text.get<std::string>();
  }
  std::string text = once;
  for (int i = 1; i < 15; ++i) text += '\n' + once;
  return text;
}

}  // namespace tw::test
