// The tokenizer.json that a GGUF vocabulary stands for.
//
// GGUF keeps a tokenizer's vocabulary but only the name of its rules; the rules come from here, as
// the Hugging Face tokenizers have them that those names were given to.
//  - model "gpt2": byte-level BPE with merges; `pre` names normalizer and split patterns
//    (gguf_pre_tokenizers.h).
//  - model "llama": SentencePiece BPE with byte fallback. Merges are rebuilt from the scores, as
//    Hugging Face's converter does it; a space is put before the text where add_space_prefix says.
// Tokens of type control or unknown become special tokens, those of type user are added tokens.
#pragma once

#include <string>

#include "core/status.h"
#include "text/tokenizer.h"

namespace tw {

// unsupported: an unknown model or `pre`. corrupt_data: arrays whose sizes contradict each other,
// ids outside the vocabulary, merges that are none.
Expected<std::string> gguf_tokenizer_json(const GgufVocabulary& vocabulary);

}  // namespace tw
