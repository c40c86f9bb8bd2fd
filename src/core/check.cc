#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace tw {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tilewright: internal error: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace tw
