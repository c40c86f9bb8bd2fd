// Timing of short pieces of work on a machine that others may use as well.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace tw {

struct Timing {
  double median = 0;  // seconds per call
  double best = 0;
};

// Calls work() until `budget` seconds have passed, at least `min_calls` times after one call to
// warm up.
template <typename Work>
Timing measure(double budget, int min_calls, Work work) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  work();
  std::vector<double> times;
  const auto start = Clock::now();
  while (static_cast<int>(times.size()) < min_calls || seconds_since(start) < budget) {
    const auto begin = Clock::now();
    work();
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

}  // namespace tw
