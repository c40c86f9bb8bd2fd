#include "apps/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "core/log.h"

namespace tw {

int raise_descriptor_limit(int max_connections, int descriptors_each) {
  constexpr rlim_t kOthers = 64;  // weights, log, engine ...
  const auto each = static_cast<rlim_t>(descriptors_each);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return max_connections;
  const rlim_t wanted = static_cast<rlim_t>(max_connections) * each + kOthers;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(limit.rlim_max, wanted);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= wanted) return max_connections;
  const rlim_t room = std::max<rlim_t>(limit.rlim_cur, kOthers + each) - kOthers;
  const auto lowered = static_cast<int>(room / each);
  log::warn("--max-connections lowered to {}: the limit of open files (ulimit -n) is {}", lowered,
            limit.rlim_cur);
  return lowered;
}

}  // namespace tw
