// Which part of a layer a rank of tensor parallelism holds.
//
// Any number of ranks divides any extent: in whole blocks, unevenly where it must be, in proportion
// to the ranks' threads. The first rank's part is empty only where all are.
#pragma once

#include <cstdint>
#include <vector>

#include "core/thread_team.h"

namespace tw {

struct TensorShard {
  int rank = 0;
  int size = 1;
  // Threads of the ranks before this one, with it, and of all.
  int64_t threads_before = 0, threads_through = 1, threads = 1;

  bool is_whole() const { return size == 1; }

  // This rank's part of `extent`, in multiples of `block`; the last part takes the tail.
  Range share(int64_t extent, int64_t block) const {
    const int64_t blocks = (extent + block - 1) / block;
    const auto border = [&](int64_t before) {
      const int64_t end = (blocks * before + threads - 1) / threads * block;
      return end < extent ? end : extent;
    };
    return {border(threads_before), border(threads_through)};
  }
};

inline std::vector<TensorShard> make_tensor_shards(const std::vector<int>& team_sizes) {
  std::vector<TensorShard> shards;
  int64_t total = 0;
  for (const int size : team_sizes) total += size;
  int64_t before = 0;
  for (const int size : team_sizes) {
    const auto rank = static_cast<int>(shards.size());
    shards.push_back({rank, static_cast<int>(team_sizes.size()), before, before + size, total});
    before += size;
  }
  return shards;
}

}  // namespace tw
