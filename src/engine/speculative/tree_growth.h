// Which guesses a tree gets: level by level, the likeliest few of a level are gone on from, and of
// all that were thought of the likeliest make up the tree. Li et al., "EAGLE-2: Faster Inference of
// Language Models with Dynamic Draft Trees" (2024). With a width of 1 it is a chain.
//
// A guess is as likely as all from the root to it are together, by what the drafter says.
//
// Each leaf has a branch of its own, where the drafter keeps the keys and values of its ancestors;
// branch 0 is the sequence's own pages.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/speculative/draft_tree.h"

namespace tw {

class TreeGrowth {
 public:
  struct Leaf {
    int32_t guess;  // DraftTree::kRoot at first
    int32_t branch;
    int32_t parent_leaf;  // of the level before
  };

  // At most `width` leaves. Guesses less likely than `least_chance` are none.
  void begin(int32_t width, float least_chance);
  std::span<const Leaf> leaves() const { return leaves_; }
  TokenId token(const Leaf& leaf) const { return guesses_[static_cast<size_t>(leaf.guess)].token; }

  // What may follow the leaf, as the logarithm of its chance there. Of a leaf the likelier first.
  void add(size_t leaf, TokenId token, float log_chance);
  // Goes on to the leaves of the next level. The branch `to` must become a copy of `from`.
  using CopyBranch = std::function<void(int32_t from, int32_t to)>;
  void descend(const CopyBranch& copy_branch);

  // Of all guesses the `count` likeliest.
  void choose(int32_t count, DraftTree& tree) const;

 private:
  struct Guess {
    TokenId token;
    int32_t parent;
    float log_chance;
    int32_t leaf;  // that it follows
  };
  std::vector<int32_t> likeliest(size_t first, int32_t count) const;

  int32_t width_ = 1;
  float least_log_chance_ = 0;
  std::vector<Guess> guesses_;
  size_t level_begin_ = 0;  // of the level that is being added, in guesses_
  std::vector<Leaf> leaves_;
};

}  // namespace tw
