// Tokenizers, exactly Hugging Face's: text to token ids and back.
//
// The work is done by the Rust crate `tokenizers` behind text-ffi/; this is its C++ face. Objects
// are immutable after loading, cheap to copy (they share the vocabulary) and may be used from
// several threads. No call starts threads of its own: a batch is encoded by its caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

struct tw_text_decode_stream;  // of the Rust library

namespace tw {

// A vocabulary as GGUF stores it (tokenizer.ggml.*), the source for from_gguf().
struct GgufVocabulary {
  std::string model;  // tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece)
  std::string pre;    // tokenizer.ggml.pre: the splitting rule, e.g. "smollm", "llama-bpe"
  std::vector<std::string> tokens;
  std::vector<std::string> merges;   // "left right"; byte-level BPE only
  std::vector<float> scores;         // SentencePiece only
  std::vector<int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte
  std::optional<int32_t> bos_token_id, eos_token_id, unk_token_id, pad_token_id;
  std::optional<bool> add_bos_token;  // unset: as the model and its `pre` are known to want it
  bool add_eos_token = false;
  bool add_space_prefix = true;
};

class Tokenizer {
 public:
  // `source_name` names the file in errors.
  static Expected<Tokenizer> from_json(std::string_view tokenizer_json,
                                       std::string_view source_name);
  // See gguf_tokenizer.h for what is known.
  static Expected<Tokenizer> from_gguf(const GgufVocabulary& vocabulary);

  // Text must be valid UTF-8 (invalid_argument otherwise). add_special_tokens runs the tokenizer's
  // post-processor (BOS and the like); special tokens in the text are recognized in any case.
  Expected<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens) const;
  Expected<std::vector<std::vector<int32_t>>> encode_batch(std::span<const std::string> texts,
                                                           bool add_special_tokens) const;
  // Ids outside the vocabulary give no text.
  Expected<std::string> decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  int64_t vocab_size() const;  // one more than the largest id, added tokens included
  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  // The tokenizer.json that recreates this tokenizer (for `tilewright convert`).
  std::string to_json() const;

 private:
  friend class GrammarCompiler;
  friend class IncrementalDecoder;
  struct Handle;
  explicit Tokenizer(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<const Handle> handle_;
};

// Turns a growing list of ids into text, piece by piece, never emitting half a UTF-8 sequence.
//
// The concatenation of all pieces and finish() equals decode() of all ids, at a cost per token that
// does not grow with their number. One exception, for tokenizers with byte fallback: where a run of
// byte tokens turns invalid after some of its characters were shown, those stay, while decode()
// replaces the run by U+FFFD from its beginning.
class IncrementalDecoder {
 public:
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);

  // The text that this id completes; empty while a character is unfinished.
  std::string push(int32_t id);
  // What is still held back, with U+FFFD for an unfinished character.
  std::string finish();

 private:
  struct FreeStream {
    void operator()(tw_text_decode_stream* stream) const;
  };
  std::unique_ptr<tw_text_decode_stream, FreeStream> stream_;
};

}  // namespace tw
