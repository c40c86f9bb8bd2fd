// Guesses of what follows a sequence's tokens: a tree whose root is the sequence's last token. A
// chain is a tree of one branch.
//
// Nodes are numbered depth first: a node comes directly behind its parent, or begins a branch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request.h"

namespace tw {

class DraftTree {
 public:
  static constexpr int32_t kRoot = -1;

  void clear() { nodes_.clear(); }
  // The parent must be the last node or one of its ancestors, or kRoot.
  void add(TokenId token, int32_t parent);
  // Behind the last one.
  void append(TokenId token) { add(token, size() - 1); }
  // Keeps the branches before this one, which is not 0.
  void drop_from_branch(int32_t branch);

  bool empty() const { return nodes_.empty(); }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  TokenId token(int32_t node) const { return at(node).token; }
  int32_t parent(int32_t node) const { return at(node).parent; }
  int32_t depth(int32_t node) const { return node == kRoot ? 0 : at(node).depth; }
  int32_t branch(int32_t node) const { return at(node).branch; }
  bool begins_branch(int32_t node) const { return at(node).parent != node - 1; }
  int32_t depth() const;  // of the deepest node; 0: empty
  int32_t num_branches() const { return empty() ? 1 : nodes_.back().branch + 1; }

  std::optional<int32_t> find_child(int32_t parent, TokenId token) const;
  bool has_children(int32_t parent) const;

 private:
  struct Node {
    TokenId token;
    int32_t parent;
    int32_t depth;   // 1: behind the root
    int32_t branch;  // from 0, in order of the nodes that begin them
  };
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }

  std::vector<Node> nodes_;
};

}  // namespace tw
