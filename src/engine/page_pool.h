// The pages of the KV cache: which are free, and how many hold on to each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tw {

// A page of page_size token slots; distinct from token ids and counts.
enum class PageId : int32_t {};

constexpr int32_t to_index(PageId page) {
  return static_cast<int32_t>(page);
}

// Reference-counted pages. All operations take constant time.
class PagePool {
 public:
  explicit PagePool(int32_t num_pages);

  // A page with one reference, or nothing when all are in use.
  std::optional<PageId> allocate();
  void add_reference(PageId page);
  // Takes one reference off; without any left the page is free.
  void release(PageId page);

  int32_t reference_count(PageId page) const { return counts_[slot(page)]; }
  int32_t num_pages() const { return static_cast<int32_t>(counts_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

 private:
  static size_t slot(PageId page) { return static_cast<size_t>(page); }

  std::vector<int32_t> counts_;
  std::vector<PageId> free_;  // a stack: a page just freed is still in cache
};

}  // namespace tw
