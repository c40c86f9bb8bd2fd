// Assertions for the program's own invariants. They stay on in release builds outside kernels:
// a wrong answer is worse than a stop.
#pragma once

namespace tw {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace tw

#define TW_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::tw::check_failed(#condition, __FILE__, __LINE__))
