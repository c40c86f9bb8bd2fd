#include "engine/speculative/draft_tree.h"

#include <algorithm>

#include "core/check.h"

namespace tw {

void DraftTree::add(TokenId token, int32_t parent) {
  TW_CHECK(parent >= kRoot && parent < size());
  const bool begins_branch = parent != size() - 1;
  const int32_t branch = nodes_.empty() ? 0 : nodes_.back().branch + (begins_branch ? 1 : 0);
  nodes_.push_back({token, parent, depth(parent) + 1, branch});
}

void DraftTree::drop_from_branch(int32_t branch) {
  std::erase_if(nodes_, [branch](const Node& node) { return node.branch >= branch; });
}

int32_t DraftTree::depth() const {
  return empty() ? 0 : std::ranges::max_element(nodes_, {}, &Node::depth)->depth;
}

std::optional<int32_t> DraftTree::find_child(int32_t parent, TokenId token) const {
  const auto found = std::ranges::find_if(
      nodes_, [=](const Node& node) { return node.parent == parent && node.token == token; });
  if (found == nodes_.end()) return std::nullopt;
  return static_cast<int32_t>(found - nodes_.begin());
}

bool DraftTree::has_children(int32_t parent) const {
  return std::ranges::find(nodes_, parent, &Node::parent) != nodes_.end();
}

}  // namespace tw
