// Where a checkpoint's tokenizer comes from.
#pragma once

#include <optional>
#include <string>

#include "text/tokenizer.h"

namespace tw {

struct TokenizerSource {
  std::string tokenizer_json;          // a Hugging Face folder's; empty for GGUF
  std::optional<GgufVocabulary> gguf;  // a GGUF file's
};

}  // namespace tw
