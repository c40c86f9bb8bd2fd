#include "kernels/attention/kv_layout.h"

namespace tw::kernels {

Status KvLayout::validate() const {
  if (num_kv_heads <= 0) {
    return error(ErrorCode::invalid_argument, "KV cache: {} KV heads; at least 1 is needed",
                 num_kv_heads);
  }
  if (head_dim <= 0 || head_dim % 8 != 0 || head_dim > kMaxHeadDim) {
    return error(ErrorCode::unsupported,
                 "KV cache: head_dim is {}; supported are multiples of 8 up to {}", head_dim,
                 kMaxHeadDim);
  }
  if (page_size <= 0 || page_size % kTokenBlock != 0) {
    return error(ErrorCode::invalid_argument,
                 "KV cache: page_size is {}; it must be a positive multiple of {}", page_size,
                 kTokenBlock);
  }
  if (num_pages <= 0) {
    return error(ErrorCode::invalid_argument, "KV cache: {} pages; at least 1 is needed",
                 num_pages);
  }
  return {};
}

}  // namespace tw::kernels
