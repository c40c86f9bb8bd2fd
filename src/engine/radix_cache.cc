#include "engine/radix_cache.h"

#include <algorithm>
#include <functional>

#include "core/check.h"

namespace tw {

struct RadixCache::Node {
  Node* parent = nullptr;
  std::vector<TokenId> tokens;  // of the edge from the parent: pages.size() * page_size
  std::vector<PageId> pages;
  std::vector<std::unique_ptr<Node>> children;  // sorted by their first page of tokens
  uint64_t last_used = 0;
};

namespace {

bool less(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

// Calls visit(node) for every node, children first.
template <typename Roots, typename Visit>
void visit_all(const Roots& roots, const Visit& visit) {
  using Node = typename Roots::mapped_type::element_type;
  std::vector<Node*> pending;
  for (const auto& [space, root] : roots) pending.push_back(root.get());
  std::vector<Node*> order;
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    order.push_back(node);
    for (auto& child : node->children) pending.push_back(child.get());
  }
  std::for_each(order.rbegin(), order.rend(), [&](Node* node) { visit(*node); });
}

}  // namespace

RadixCache::RadixCache(PagePool& pool, int32_t page_size) : pool_(pool), page_size_(page_size) {}

RadixCache::~RadixCache() {
  clear();
}

RadixCache::Node* RadixCache::find_child(const Node& node, std::span<const TokenId> tokens,
                                         int32_t page_size) {
  const auto page = static_cast<size_t>(page_size);
  if (tokens.size() < page) return nullptr;
  const auto key = tokens.first(page);
  const auto first_page = [page](const Node& child) {
    return std::span<const TokenId>(child.tokens).first(page);
  };
  const auto found =
      std::lower_bound(node.children.begin(), node.children.end(), key,
                       [&](const std::unique_ptr<Node>& child, std::span<const TokenId> wanted) {
                         return less(first_page(*child), wanted);
                       });
  if (found == node.children.end() || !std::ranges::equal(first_page(**found), key)) {
    return nullptr;
  }
  return found->get();
}

RadixCache::Node* RadixCache::first_child(std::span<const TokenId> tokens, uint64_t space) const {
  const auto root = roots_.find(space);
  return root == roots_.end() ? nullptr : find_child(*root->second, tokens, page_size_);
}

int32_t RadixCache::shared_pages(const Node& node, std::span<const TokenId> tokens) const {
  const size_t limit = std::min(node.tokens.size(), tokens.size());
  const auto mismatch = std::mismatch(
      node.tokens.begin(), node.tokens.begin() + static_cast<int64_t>(limit), tokens.begin());
  return static_cast<int32_t>(mismatch.first - node.tokens.begin()) / page_size_;
}

std::vector<PageId> RadixCache::match(std::span<const TokenId> tokens, uint64_t space) {
  std::vector<PageId> pages;
  ++clock_;
  for (Node* node = first_child(tokens, space); node != nullptr;
       node = find_child(*node, tokens, page_size_)) {
    const int32_t shared = shared_pages(*node, tokens);
    // What is used and what is not age apart from here on.
    if (shared < static_cast<int32_t>(node->pages.size())) split(*node, shared);
    node->last_used = clock_;
    pages.insert(pages.end(), node->pages.begin(), node->pages.end());
    tokens = tokens.subspan(node->tokens.size());
  }
  for (PageId page : pages) pool_.add_reference(page);
  return pages;
}

int64_t RadixCache::match_length(std::span<const TokenId> tokens, uint64_t space) const {
  int64_t length = 0;
  for (const Node* node = first_child(tokens, space); node != nullptr;
       node = find_child(*node, tokens, page_size_)) {
    const int32_t shared = shared_pages(*node, tokens);
    length += int64_t{shared} * page_size_;
    if (shared < static_cast<int32_t>(node->pages.size())) break;
    tokens = tokens.subspan(node->tokens.size());
  }
  return length;
}

// The node keeps its first pages; the rest moves into a new only child.
void RadixCache::split(Node& node, int32_t num_pages) {
  TW_CHECK(num_pages > 0 && num_pages < static_cast<int32_t>(node.pages.size()));
  auto rest = std::make_unique<Node>();
  const auto num_tokens = static_cast<int64_t>(num_pages) * page_size_;
  rest->parent = &node;
  rest->tokens.assign(node.tokens.begin() + num_tokens, node.tokens.end());
  rest->pages.assign(node.pages.begin() + num_pages, node.pages.end());
  rest->children = std::move(node.children);
  rest->last_used = node.last_used;
  for (auto& child : rest->children) child->parent = rest.get();
  node.tokens.resize(static_cast<size_t>(num_tokens));
  node.pages.resize(static_cast<size_t>(num_pages));
  node.children.clear();
  node.children.push_back(std::move(rest));
}

void RadixCache::insert(std::span<const TokenId> tokens, std::span<const PageId> pages,
                        uint64_t space) {
  const size_t whole = std::min(tokens.size() / static_cast<size_t>(page_size_), pages.size());
  tokens = tokens.first(whole * static_cast<size_t>(page_size_));
  pages = pages.first(whole);
  ++clock_;
  if (pages.empty()) return;
  auto& root = roots_[space];
  if (!root) root = std::make_unique<Node>();
  Node* node = root.get();
  while (!pages.empty()) {
    Node* child = find_child(*node, tokens, page_size_);
    if (child == nullptr) break;
    const int32_t shared = shared_pages(*child, tokens);
    if (shared < static_cast<int32_t>(child->pages.size())) split(*child, shared);
    child->last_used = clock_;
    tokens = tokens.subspan(child->tokens.size());
    pages = pages.subspan(child->pages.size());
    node = child;
  }
  if (pages.empty()) return;
  auto leaf = std::make_unique<Node>();
  leaf->parent = node;
  leaf->tokens.assign(tokens.begin(), tokens.end());
  leaf->pages.assign(pages.begin(), pages.end());
  leaf->last_used = clock_;
  for (PageId page : pages) pool_.add_reference(page);
  num_pages_ += static_cast<int32_t>(pages.size());
  const auto place =
      std::lower_bound(node->children.begin(), node->children.end(), leaf,
                       [](const auto& a, const auto& b) { return less(a->tokens, b->tokens); });
  node->children.insert(place, std::move(leaf));
}

void RadixCache::remove_leaf(Node& leaf) {
  for (PageId page : leaf.pages) pool_.release(page);
  num_pages_ -= static_cast<int32_t>(leaf.pages.size());
  auto& siblings = leaf.parent->children;
  siblings.erase(std::find_if(siblings.begin(), siblings.end(),
                              [&](const auto& child) { return child.get() == &leaf; }));
}

int32_t RadixCache::evict(int32_t count) {
  const auto evictable = [this](const Node& node) {
    return node.parent != nullptr && node.children.empty() &&
           std::ranges::all_of(node.pages,
                               [this](PageId page) { return pool_.reference_count(page) == 1; });
  };
  // A heap of leaves by age; a parent joins it when its last child is gone.
  const auto younger = [](const Node* a, const Node* b) { return a->last_used > b->last_used; };
  std::vector<Node*> leaves;
  visit_all(roots_, [&](Node& node) {
    if (evictable(node)) leaves.push_back(&node);
  });
  std::make_heap(leaves.begin(), leaves.end(), younger);
  int32_t freed = 0;
  while (freed < count && !leaves.empty()) {
    std::pop_heap(leaves.begin(), leaves.end(), younger);
    Node* leaf = leaves.back();
    leaves.pop_back();
    Node* parent = leaf->parent;
    const auto leaf_pages = static_cast<int32_t>(leaf->pages.size());
    const int32_t wanted = count - freed;
    if (leaf_pages > wanted) {
      // Only the end of a long edge has to go.
      split(*leaf, leaf_pages - wanted);
      remove_leaf(*leaf->children.front());
      freed += wanted;
      break;
    }
    remove_leaf(*leaf);
    freed += leaf_pages;
    if (evictable(*parent)) {
      leaves.push_back(parent);
      std::push_heap(leaves.begin(), leaves.end(), younger);
    }
  }
  std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
  return freed;
}

void RadixCache::clear() {
  visit_all(roots_, [this](Node& node) {
    for (PageId page : node.pages) pool_.release(page);
    node.children.clear();
  });
  roots_.clear();
  num_pages_ = 0;
}

int32_t RadixCache::num_evictable() const {
  int32_t count = 0;
  visit_all(roots_, [&](const Node& node) {
    count += static_cast<int32_t>(std::ranges::count_if(
        node.pages, [this](PageId page) { return pool_.reference_count(page) == 1; }));
  });
  return count;
}

}  // namespace tw
