// The committed outputs of the reference libraries, and the tokenizers that they came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/tokenizer.h"

namespace tw::test {

// tests/text/golden/<name>, read once and kept; the test program ends when it cannot be read.
const Json& read_golden(std::string_view name);

// The file of .cache/tokenizers/<tokenizer>/ that tools/fetch_tokenizers.sh fetched, or nothing,
// with the reason why the test cannot run. The environment variable TW_ALLOW_MISSING_ASSETS turns
// that from a failure into a skip (see TW_REQUIRE_ASSET).
std::optional<std::string> read_asset(std::string_view tokenizer, std::string_view file);
bool missing_assets_allowed();

// Loaded once per test program; empty when the assets are missing.
const Tokenizer* cached_tokenizer(const std::string& name);

// FNV-1a, as tools/golden/make_tokenizer_golden.py computes it, in hexadecimal.
std::string hash_ids(const std::vector<int32_t>& ids);

// All golden texts over and over, as tools/golden/tokenizer_texts.py builds it.
std::string long_text(const Json& texts);

inline constexpr const char* kTokenizers[] = {"qwen3", "llama3_1", "deepseek_v3", "gptoss",
                                              "gemma3"};

}  // namespace tw::test

// Leaves the test when the value (pointer or optional) is empty.
#define TW_REQUIRE_ASSET(value)                                                        \
  if (!(value)) {                                                                      \
    if (::tw::test::missing_assets_allowed()) GTEST_SKIP() << "assets are missing";    \
    FAIL() << "run tools/fetch_tokenizers.sh, or set TW_ALLOW_MISSING_ASSETS to skip"; \
  }                                                                                    \
  static_assert(true)
