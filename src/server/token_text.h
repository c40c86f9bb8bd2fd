// Single tokens as text and bytes, as logprobs show them.
#pragma once

#include <optional>
#include <string>

#include "core/json.h"
#include "engine/request.h"
#include "text/tokenizer.h"

namespace tw {

// A token alone: its bytes where they can be told, and its text, with U+FFFD for what is only a
// part of a character. Special tokens show their name.
struct TokenText {
  std::string text;
  std::optional<std::string> bytes;
};

TokenText token_text(const Tokenizer& tokenizer, TokenId id);

// OpenAI's "bytes": an array of numbers, or null.
Json bytes_json(const TokenText& token);

// What JSON can hold: -inf and below become OpenAI's -9999.
double finite_logprob(float logprob);

// Number of code points (lenient: counts lead bytes).
size_t count_code_points(std::string_view text);

}  // namespace tw
