#include "engine/page_pool.h"

#include "core/check.h"

namespace tw {

PagePool::PagePool(int32_t num_pages) : counts_(static_cast<size_t>(num_pages), 0) {
  free_.reserve(counts_.size());
  for (int32_t page = num_pages; page-- > 0;) free_.push_back(PageId{page});
}

std::optional<PageId> PagePool::allocate() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  counts_[slot(page)] = 1;
  return page;
}

void PagePool::add_reference(PageId page) {
  TW_CHECK(counts_[slot(page)] > 0);
  ++counts_[slot(page)];
}

void PagePool::release(PageId page) {
  TW_CHECK(counts_[slot(page)] > 0);
  if (--counts_[slot(page)] == 0) free_.push_back(page);
}

}  // namespace tw
