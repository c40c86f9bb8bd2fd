#include "nn/kv_cache.h"

#include <algorithm>

namespace tw {
namespace {

// Of each head's keys, and values.
constexpr size_t kSmallPagedHeadBytes = size_t{2} << 20;

}  // namespace

Expected<KvCache> KvCache::allocate(const kernels::KvLayout& layout) {
  if (Status status = layout.validate(); !status) return forward_error(status);
  KvCache cache;
  cache.layout_ = layout;
  int64_t elements = 0;
  if (__builtin_mul_overflow(layout.num_pages, layout.key_page_size() + layout.value_page_size(),
                             &elements) ||
      elements > INT64_MAX / kernels::element_size(layout.type)) {
    return error(ErrorCode::resource_exhausted, "KV cache of {} pages is too large",
                 layout.num_pages);
  }
  auto buffer =
      Buffer::allocate(static_cast<size_t>(elements * kernels::element_size(layout.type)));
  if (!buffer) return forward_error(buffer);
  cache.buffer_ = std::move(*buffer);
  cache.advise_page_sizes();
  return cache;
}

void KvCache::copy_page(int64_t from, int64_t to) {
  const auto copy = [&](std::byte* keys_or_values, int64_t page_size) {
    const int64_t bytes = page_size / layout_.num_kv_heads * kernels::element_size(layout_.type);
    for (int64_t head = 0; head < layout_.num_kv_heads; ++head) {
      std::byte* pages = keys_or_values + head * layout_.num_pages * bytes;
      std::copy_n(pages + from * bytes, bytes, pages + to * bytes);
    }
  };
  copy(keys(), layout_.key_page_size());
  copy(values(), layout_.value_page_size());
}

void KvCache::advise_page_sizes() const {
  const auto advise = [this](const std::byte* keys_or_values, int64_t page_size) {
    const auto head_bytes = static_cast<size_t>(
        layout_.num_pages * page_size / layout_.num_kv_heads * kernels::element_size(layout_.type));
    const auto begin = static_cast<size_t>(keys_or_values - buffer_.data());
    for (int head = 0; head < layout_.num_kv_heads; ++head) {
      buffer_.use_small_pages(begin + static_cast<size_t>(head) * head_bytes,
                              std::min(head_bytes, kSmallPagedHeadBytes));
    }
  };
  advise(keys(), layout_.key_page_size());
  advise(values(), layout_.value_page_size());
}

}  // namespace tw
