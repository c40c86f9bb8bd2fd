// Tokenizers, exactly Hugging Face's: text to token ids and back.
//
// The work is done by the Rust crate `tokenizers` behind text-ffi/; this is its C++ face. Objects
// are immutable after loading and may be used from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace tw {

// A vocabulary as GGUF stores it (tokenizer.ggml.*), the source for from_gguf().
struct GgufVocabulary {
  std::string model;      // tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece)
  std::string pre;        // tokenizer.ggml.pre: which splitting rule, e.g. "smollm", "llama-bpe"
  std::vector<std::string> tokens;
  std::vector<std::string> merges;        // "left right"
  std::vector<float> scores;
  std::vector<int32_t> token_types;       // 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte
  std::optional<int32_t> bos_token_id, eos_token_id, unk_token_id, pad_token_id;
  bool add_bos_token = false;
  bool add_eos_token = false;
  bool add_space_prefix = true;
};

class Tokenizer {
 public:
  static Expected<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view source_name);
  static Expected<Tokenizer> from_gguf(const GgufVocabulary& vocabulary);

  // Text must be valid UTF-8 (invalid_argument otherwise). add_special_tokens runs the tokenizer's
  // post-processor (BOS and the like).
  Expected<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens) const;
  Expected<std::vector<std::vector<int32_t>>> encode_batch(std::span<const std::string> texts,
                                                           bool add_special_tokens) const;
  Expected<std::string> decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  int64_t vocab_size() const;  // with added tokens
  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  // The tokenizer.json that recreates this tokenizer (for `tilewright convert`).
  std::string to_json() const;

 private:
  friend class IncrementalDecoder;
  struct Handle;
  std::shared_ptr<const Handle> handle_;
};

// Turns a growing list of ids into text, piece by piece, never emitting half a UTF-8 sequence.
// The concatenation of all pieces equals decode() of all ids, up to an unfinished last character.
class IncrementalDecoder {
 public:
  IncrementalDecoder(Tokenizer tokenizer, bool skip_special_tokens);
  // The text that this id completes; empty while a character is unfinished.
  std::string push(int32_t id);
  // What is still held back, with U+FFFD for an unfinished character.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> ids_;
  size_t prefix_offset_ = 0;
  size_t read_offset_ = 0;
};

}  // namespace tw
