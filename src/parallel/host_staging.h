// Where what hosts send each other waits: what this one's ranks give, and what came from others.
// Sized once; longer values go in blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_team.h"
#include "parallel/host_link.h"

namespace tw {

class HostStaging {
 public:
  // Floats of a block: large enough that a message takes longer than its latency, small enough that
  // it comes back from the cache.
  static constexpr int64_t kBlock = 1 << 20;

  explicit HostStaging(HostLink& link);

  HostLink& link() const { return link_; }

  // This host's part of a block, for its ranks to write: two in turns, since some may still read
  // the one before.
  float* own(int64_t turn) { return own_[static_cast<size_t>(turn % 2)].data(); }

  // Sends `own` to all other hosts and receives theirs. By one thread, while the others wait. What
  // fails is the link's to tell: the block is then what it was before.
  void swap(std::span<const float> own);
  // Likewise, but sends each host its share of `own` alone, as share_of() says.
  void scatter(std::span<const float> own);
  Range share_of(int host, int64_t count) const { return share_of(host, link_.num_hosts(), count); }
  static Range share_of(int host, int num_hosts, int64_t count) {
    return partition(count, host, num_hosts, 16);  // whole lines of the cache
  }
  // As swap(), but to the first host alone.
  void collect(std::span<const float> own);

  // What another host sent last; without data if it had nothing to give.
  std::span<const float> received(int host) const;

 private:
  HostLink& link_;
  std::vector<float> own_[2];
  std::vector<std::vector<float>> blocks_;  // [num_hosts], empty for this one
  std::vector<HostSend> sends_;             // to all others
  std::vector<HostReceive> receives_;       // from all others, in order of hosts
};

}  // namespace tw
