// A tokenizer whose tokens are bytes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/json.h"
#include "text/tokenizer.h"

namespace tw {

inline void append_utf8(std::string& text, uint32_t code_point) {
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else {
    text += static_cast<char>(0xC0 | code_point >> 6);
    text += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

// Byte b is token b; token 256 is the special <|end|>.
inline Tokenizer byte_tokenizer() {
  Json vocabulary = Json::object();
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string spelling;
    append_utf8(spelling, printable ? byte : next++);
    vocabulary[spelling] = byte;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array({{{"id", 256},
                                                    {"content", "<|end|>"},
                                                    {"single_word", false},
                                                    {"lstrip", false},
                                                    {"rstrip", false},
                                                    {"normalized", false},
                                                    {"special", true}}})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}}}};
  auto tokenizer = Tokenizer::from_json(dump_json(json), "byte tokenizer");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

}  // namespace tw
