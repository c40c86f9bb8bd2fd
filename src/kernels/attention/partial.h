// One row's partial softmax over a part of the context, as it lies in memory.
#pragma once

#include <cstdint>

namespace tw::kernels {

// Floats of a partial: padded_head_dim weighted values, then maximum and sum, padded to a cache
// line.
constexpr int64_t partial_stride(int64_t padded_head_dim) {
  return padded_head_dim + 16;
}

}  // namespace tw::kernels
