// Grammars: which tokens may come next, so that a generation is JSON of a schema, matches a regular
// expression or a context-free grammar.
//
// The work is done by the Rust crate `llguidance` behind text-ffi/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "text/tokenizer.h"

struct tw_text_grammar;  // of the Rust library

namespace tw {

enum class GrammarKind : uint8_t {
  json_schema,  // the text is JSON of that schema; little white space; oneOf means anyOf
  regex,        // the whole text matches (Rust's syntax: no look-around, no back references)
  ebnf,         // Lark with rule `start`, or GBNF with rule `root` (`root ::= ...`)
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::json_schema;
  std::string text;
};

// The state of a grammar in one generation; used by one thread at a time.
class Grammar {
 public:
  // As it is now, independent from here on; the two may be used by different threads.
  Grammar clone() const;

  // Bit id % 32 of word id / 32: that token may come next. At the end, the tokens that end texts.
  Status mask(std::span<uint32_t> words);
  // Moves on by a token that the mask allows.
  Status accept(int32_t token);
  // Nothing but the end may follow, or the end came.
  bool complete() const;

 private:
  friend class GrammarCompiler;
  struct Free {
    void operator()(tw_text_grammar* grammar) const;
  };
  explicit Grammar(tw_text_grammar* grammar) : grammar_(grammar) {}
  std::unique_ptr<tw_text_grammar, Free> grammar_;
};

// Compiles grammars for one vocabulary. Immutable, cheap to copy, for several threads.
class GrammarCompiler {
 public:
  // `eos_token_ids`: what may come where a grammar may end. Takes a fraction of a second.
  static Expected<GrammarCompiler> create(const Tokenizer& tokenizer,
                                          std::span<const int32_t> eos_token_ids);

  // invalid_argument when the source is no grammar, or one that is too large or too much work.
  Expected<Grammar> compile(const GrammarSource& source) const;

 private:
  struct Handle;
  explicit GrammarCompiler(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<const Handle> handle_;
};

}  // namespace tw
