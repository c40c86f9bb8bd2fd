// The memory of the paged KV cache: all layers' keys and values.
#pragma once

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
  static Expected<KvCache> allocate(const kernels::KvLayout& layout, int64_t num_layers,
                                    int64_t num_pages);

  const kernels::KvLayout& layout() const { return layout_; }
  bf16_t* keys(int64_t layer) const {
    return buffer_.as<bf16_t>() + layer * num_pages_ * layer_page_size();
  }
  bf16_t* values(int64_t layer) const { return keys(layer) + num_pages_ * layout_.key_page_size(); }

 private:
  // Pages are used from the lowest on, so every head of every layer touches the begin of its array:
  // with huge pages there, a short conversation would take gigabytes in a model with many heads.
  void advise_page_sizes(int64_t num_layers) const;

  int64_t layer_page_size() const { return layout_.key_page_size() + layout_.value_page_size(); }

  kernels::KvLayout layout_;
  int64_t num_pages_ = 0;
  Buffer buffer_;
};

}  // namespace tw
