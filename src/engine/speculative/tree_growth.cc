#include "engine/speculative/tree_growth.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tw {

void TreeGrowth::begin(int32_t width, float least_chance) {
  width_ = width;
  least_log_chance_ = std::log(least_chance);
  guesses_.clear();
  level_begin_ = 0;
  leaves_.assign(1, {DraftTree::kRoot, 0, 0});
}

void TreeGrowth::add(size_t leaf, TokenId token, float log_chance) {
  const int32_t parent = leaves_[leaf].guess;
  if (parent != DraftTree::kRoot) log_chance += guesses_[static_cast<size_t>(parent)].log_chance;
  if (!(log_chance >= least_log_chance_)) return;  // nor what is not a number
  guesses_.push_back({token, parent, log_chance, static_cast<int32_t>(leaf)});
}

// Earlier ones first among equals: so parents come before their children.
std::vector<int32_t> TreeGrowth::likeliest(size_t first, int32_t count) const {
  std::vector<int32_t> order(guesses_.size() - first);
  std::iota(order.begin(), order.end(), static_cast<int32_t>(first));
  std::ranges::stable_sort(order, std::greater(), [this](int32_t guess) {
    return guesses_[static_cast<size_t>(guess)].log_chance;
  });
  order.resize(std::min(order.size(), static_cast<size_t>(count)));
  return order;
}

void TreeGrowth::descend(const CopyBranch& copy_branch) {
  std::vector<Leaf> next;
  std::vector<bool> has_heir(leaves_.size(), false);  // which stays in its branch
  std::vector<bool> taken(static_cast<size_t>(width_), false);
  for (const int32_t guess : likeliest(level_begin_, width_)) {
    const int32_t parent = guesses_[static_cast<size_t>(guess)].leaf;
    Leaf leaf = {guess, -1, parent};
    if (const auto index = static_cast<size_t>(parent); !has_heir[index]) {
      has_heir[index] = true;
      leaf.branch = leaves_[index].branch;
      taken[static_cast<size_t>(leaf.branch)] = true;
    }
    next.push_back(leaf);
  }
  int32_t free = 0;
  for (Leaf& leaf : next) {
    if (leaf.branch >= 0) continue;
    while (taken[static_cast<size_t>(free)]) ++free;
    leaf.branch = free++;
    copy_branch(leaves_[static_cast<size_t>(leaf.parent_leaf)].branch, leaf.branch);
  }
  leaves_ = std::move(next);
  level_begin_ = guesses_.size();
}

void TreeGrowth::choose(int32_t count, DraftTree& tree) const {
  std::vector<bool> chosen(guesses_.size(), false);
  for (const int32_t guess : likeliest(0, count)) chosen[static_cast<size_t>(guess)] = true;
  const auto add_children = [&](const auto& self, int32_t parent, int32_t node) -> void {
    for (size_t i = 0; i < guesses_.size(); ++i) {
      if (!chosen[i] || guesses_[i].parent != parent) continue;
      tree.add(guesses_[i].token, node);
      self(self, static_cast<int32_t>(i), tree.size() - 1);
    }
  };
  add_children(add_children, DraftTree::kRoot, DraftTree::kRoot);
}

}  // namespace tw
