#include "router/prefix_index.h"

#include <functional>

namespace tw {
namespace {

// Calls `visit` with the hash up to the end of each whole block, until it answers false.
template <typename Visit>
void for_each_prefix(std::string_view text, Visit visit) {
  uint64_t hash = 0;
  while (text.size() >= PrefixIndex::kBlockBytes) {
    const uint64_t block = std::hash<std::string_view>()(text.substr(0, PrefixIndex::kBlockBytes));
    hash = (hash ^ block) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
    if (!visit(hash)) return;
    text.remove_prefix(PrefixIndex::kBlockBytes);
  }
}

}  // namespace

size_t PrefixIndex::match(std::string_view text) const {
  size_t matched = 0;
  for_each_prefix(text, [&](uint64_t hash) {
    if (!blocks_.contains(hash)) return false;
    matched += kBlockBytes;
    return true;
  });
  return matched;
}

void PrefixIndex::insert(std::string_view text) {
  size_t num_blocks = 0;
  for_each_prefix(text, [&](uint64_t hash) {
    const auto [found, is_new] = blocks_.try_emplace(hash);
    if (is_new) {
      found->second = recent_.insert(recent_.begin(), hash);
    } else {
      recent_.splice(recent_.begin(), recent_, found->second);
    }
    // What a longer text has beyond the index would push out its own beginning.
    return ++num_blocks < max_blocks_;
  });
  while (blocks_.size() > max_blocks_) {
    blocks_.erase(recent_.back());
    recent_.pop_back();
  }
}

}  // namespace tw
