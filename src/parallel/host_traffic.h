// What collectives over hosts send, from the numbers alone: for predictions.
#pragma once

#include "parallel/host_link.h"

namespace tw {

// What `host` of `num_hosts` sends in an all-reduce of `count` floats.
HostTraffic all_reduce_traffic(int num_hosts, int host, int64_t count);

}  // namespace tw
