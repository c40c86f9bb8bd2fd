#include "text/gguf_merges.h"

#include <algorithm>
#include <unordered_map>

namespace tw {
namespace {

// Splitting a piece everywhere costs the square of its length. Real pieces are far shorter (a run
// of spaces or dashes); longer ones are left without merges.
constexpr size_t kMaxPieceBytes = 512;

struct Merge {
  std::string_view left;
  std::string_view right;
  float score;
  int32_t left_id;
  int32_t right_id;
  uint32_t left_length;  // in characters
  uint32_t right_length;
};

bool begins_character(char byte) {
  return (static_cast<uint8_t>(byte) & 0xc0) != 0x80;
}

}  // namespace

std::vector<PieceMerge> merges_from_scores(std::span<const ScoredPiece> pieces) {
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(pieces.size());
  for (const ScoredPiece& piece : pieces) ids.emplace(piece.text, piece.id);

  std::vector<Merge> merges;
  for (const ScoredPiece& piece : pieces) {
    const std::string_view text = piece.text;
    if (text.size() > kMaxPieceBytes) continue;
    const size_t piece_begin = merges.size();
    const auto length = static_cast<uint32_t>(std::ranges::count_if(text, begins_character));
    uint32_t left_length = 0;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (!begins_character(text[cut])) continue;
      ++left_length;
      const auto left = ids.find(text.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(text.substr(cut));
      if (right == ids.end()) continue;
      merges.push_back({left->first, right->first, piece.score, left->second, right->second,
                        left_length, length - left_length});
    }
    std::sort(merges.begin() + static_cast<ptrdiff_t>(piece_begin), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
              });
  }
  std::ranges::stable_sort(merges, [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.left_length, a.right_length) >
           std::tuple(b.score, b.left_length, b.right_length);
  });

  std::vector<PieceMerge> result;
  result.reserve(merges.size());
  for (const Merge& merge : merges) result.push_back({merge.left, merge.right});
  return result;
}

}  // namespace tw
