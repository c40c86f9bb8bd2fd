// The memory of one layer's paged KV cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "core/status.h"
#include "kernels/attention/kv_layout.h"

namespace tw {

// Pages are reserved at once and touched when first written, so that a cache sized for a full
// server costs an idle one nothing.
class KvCache {
 public:
  KvCache() = default;
  // Fails with unsupported or invalid_argument for a layout that no kernel reads, and with
  // resource_exhausted.
  static Expected<KvCache> allocate(const kernels::KvLayout& layout);

  const kernels::KvLayout& layout() const { return layout_; }
  std::byte* keys() const { return buffer_.data(); }
  std::byte* values() const {
    return keys() +
           layout_.num_pages * layout_.key_page_size() * kernels::element_size(layout_.type);
  }
  void copy_page(int64_t from, int64_t to);

 private:
  // Pages are used from the lowest on, so every head of every layer touches the begin of its array:
  // with huge pages there, a short conversation would take gigabytes in a model with many heads.
  void advise_page_sizes() const;

  kernels::KvLayout layout_;
  Buffer buffer_;
};

}  // namespace tw
