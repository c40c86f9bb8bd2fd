#include "nn/kv_cache.h"

namespace tw {

Expected<KvCache> KvCache::allocate(const kernels::KvLayout& layout, int64_t num_layers,
                                    int64_t num_pages) {
  KvCache cache;
  cache.layout_ = layout;
  cache.layout_.num_pages = num_pages;
  if (Status status = cache.layout_.validate(); !status) return forward_error(status);
  cache.num_pages_ = num_pages;
  int64_t elements = 0;
  if (__builtin_mul_overflow(num_layers * num_pages, cache.layer_page_size(), &elements) ||
      elements > INT64_MAX / static_cast<int64_t>(sizeof(bf16_t))) {
    return error(ErrorCode::resource_exhausted, "KV cache of {} pages is too large", num_pages);
  }
  auto buffer = Buffer::allocate(static_cast<size_t>(elements) * sizeof(bf16_t));
  if (!buffer) return forward_error(buffer);
  cache.buffer_ = std::move(*buffer);
  return cache;
}

}  // namespace tw
