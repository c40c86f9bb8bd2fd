// The prefix cache: a radix tree from token sequences to the KV pages that hold them
// (as in Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs", 2024).
//
// An edge carries one or more whole pages of tokens; only whole pages are shared. The cache holds
// one reference to each of its pages; a request that uses them holds another, so that a page in use
// is never freed, only forgotten. Eviction removes the least recently used leaves whose pages
// nobody else holds.
//
// Tokens that were computed in different ways (with different adapters) lie in spaces of their own,
// each with a number: nothing is shared between them, but age and memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/page_pool.h"
#include "engine/request.h"

namespace tw {

class RadixCache {
 public:
  RadixCache(PagePool& pool, int32_t page_size);
  ~RadixCache();
  RadixCache(const RadixCache&) = delete;
  RadixCache& operator=(const RadixCache&) = delete;

  // The pages of the longest cached prefix of whole pages, each with a reference added for the
  // caller. Marks the path as just used.
  std::vector<PageId> match(std::span<const TokenId> tokens, uint64_t space = 0);
  // How many tokens match() would find.
  int64_t match_length(std::span<const TokenId> tokens, uint64_t space = 0) const;

  // Remembers that `pages` hold the whole pages of `tokens`. Where a prefix is known already its
  // own pages stay; the given duplicates are left to the caller. Adds references to pages it keeps.
  void insert(std::span<const TokenId> tokens, std::span<const PageId> pages, uint64_t space = 0);

  // Frees at least `count` pages if so many can be freed; returns how many were.
  int32_t evict(int32_t count);
  void clear();

  int32_t num_pages() const { return num_pages_; }
  // Pages that nobody but the cache holds.
  int32_t num_evictable() const;

 private:
  struct Node;
  // Child whose first page of tokens equals that of `tokens`, or null.
  static Node* find_child(const Node& node, std::span<const TokenId> tokens, int32_t page_size);
  // Whole pages that the node's edge shares with `tokens`.
  int32_t shared_pages(const Node& node, std::span<const TokenId> tokens) const;
  // The child of a space's root.
  Node* first_child(std::span<const TokenId> tokens, uint64_t space) const;
  void split(Node& node, int32_t num_pages);
  void remove_leaf(Node& leaf);

  PagePool& pool_;
  const int32_t page_size_;
  std::map<uint64_t, std::unique_ptr<Node>> roots_;  // by space; those with children
  int32_t num_pages_ = 0;
  uint64_t clock_ = 0;  // counts uses: no time is read, so that runs repeat
};

}  // namespace tw
