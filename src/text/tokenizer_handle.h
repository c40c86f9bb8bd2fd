// The owner of a tokenizer of the Rust text library; internal to the text floor.
#pragma once

#include "text/text_ffi.h"
#include "text/tokenizer.h"

namespace tw {

struct Tokenizer::Handle {
  explicit Handle(const tw_text_tokenizer* owned) : tokenizer(owned) {}
  ~Handle() { tw_text_tokenizer_free(tokenizer); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const tw_text_tokenizer* tokenizer;
};

}  // namespace tw
