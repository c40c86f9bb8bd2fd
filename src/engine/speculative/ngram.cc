#include "engine/speculative/ngram.h"

#include <algorithm>

namespace tw {
namespace {

constexpr size_t kShortest = 2, kLongest = 8;

}  // namespace

void draft_by_ngram(std::span<const TokenId> tokens, int32_t max_drafts,
                    std::vector<TokenId>& drafts) {
  drafts.clear();
  size_t best_length = kShortest - 1, best_end = 0;
  for (size_t end = tokens.size() - 1; end > best_length && best_length < kLongest; --end) {
    size_t length = 0;
    const size_t most = std::min(kLongest, end);
    while (length < most && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) {
      ++length;
    }
    if (length > best_length) best_length = length, best_end = end;
  }
  if (best_end == 0 || max_drafts <= 0) return;
  const size_t count = std::min(static_cast<size_t>(max_drafts), tokens.size() - best_end);
  const auto followers = tokens.subspan(best_end, count);
  drafts.assign(followers.begin(), followers.end());
}

void NgramDrafter::propose(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    draft_by_ngram(request.sequence->tokens, request.limit, request.sequence->drafts);
  }
}

}  // namespace tw
