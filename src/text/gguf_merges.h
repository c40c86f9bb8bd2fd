// The merges of a SentencePiece BPE vocabulary, which itself keeps only scores; internal to
// gguf_tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tw {

struct ScoredPiece {
  std::string_view text;  // valid UTF-8
  int32_t id;
  float score;
};

struct PieceMerge {
  std::string_view left;
  std::string_view right;
};

// Every way to put a piece together from two others, best first: by score, then the longer parts
// first, as Hugging Face's converter orders them (generate_merges).
std::vector<PieceMerge> merges_from_scores(std::span<const ScoredPiece> pieces);

}  // namespace tw
