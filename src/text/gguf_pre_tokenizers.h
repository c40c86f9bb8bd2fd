// The splitting rules that GGUF names in tokenizer.ggml.pre; internal to gguf_tokenizer.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace tw {

// How byte-level BPE cuts text into words before it merges bytes.
struct GgufPreTokenizer {
  std::string_view name;
  // Regular expressions applied one after the other, each match a piece of its own.
  std::array<std::string_view, 4> splits;
  bool split_digits;   // each digit alone, before anything else
  bool gpt2_split;     // GPT-2's expression, after everything else
  bool normalize_nfc;  // Unicode's composed form first
  bool ignore_merges;  // a word that is a token needs no merges that lead to it
  bool add_bos;        // what a file means that does not say add_bos_token
};

// In order of the names.
std::span<const GgufPreTokenizer> gguf_pre_tokenizers();

// Null when unknown. An empty name means "default", as for files older than the field.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);

}  // namespace tw
