#include "nn/kv_cache.h"

#include <algorithm>

namespace tw {
namespace {

// Of each head's keys, and values.
constexpr size_t kSmallPagedHeadBytes = size_t{2} << 20;

}  // namespace

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
  cache.advise_page_sizes(num_layers);
  return cache;
}

void KvCache::advise_page_sizes(int64_t num_layers) const {
  const auto advise = [this](const bf16_t* keys_or_values, int64_t size) {
    const auto head_bytes = static_cast<size_t>(size / layout_.num_kv_heads) * sizeof(bf16_t) *
                            static_cast<size_t>(num_pages_);
    const auto begin =
        static_cast<size_t>(reinterpret_cast<const std::byte*>(keys_or_values) - buffer_.data());
    for (int head = 0; head < layout_.num_kv_heads; ++head) {
      buffer_.use_small_pages(begin + static_cast<size_t>(head) * head_bytes,
                              std::min(head_bytes, kSmallPagedHeadBytes));
    }
  };
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    advise(keys(layer), layout_.key_page_size());
    advise(values(layer), layout_.value_page_size());
  }
}

}  // namespace tw
