// A progress bar for long work, on stderr; silent when stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tw {

class ProgressBar {
 public:
  // `unit` is what `total` counts, e.g. "tensors" or "MB".
  ProgressBar(std::string label, int64_t total, std::string unit);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(int64_t amount = 1);

 private:
  void draw();

  std::string label_;
  std::string unit_;
  int64_t total_;
  int64_t done_ = 0;
  bool visible_;
  std::chrono::steady_clock::time_point last_draw_{};
};

}  // namespace tw
