#include "core/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tw {

ProgressBar::ProgressBar(std::string label, int64_t total, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), visible_(isatty(2) == 1) {}

ProgressBar::~ProgressBar() {
  if (visible_ && done_ > 0) std::fputs("\r\033[K", stderr);
}

void ProgressBar::advance(int64_t amount) {
  done_ += amount;
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (done_ < total_ && now - last_draw_ < std::chrono::milliseconds(100)) return;
  last_draw_ = now;
  draw();
}

void ProgressBar::draw() {
  constexpr int kWidth = 32;
  const double share = total_ > 0 ? std::min(1.0, static_cast<double>(done_) / total_) : 1.0;
  const int filled = static_cast<int>(share * kWidth);
  std::fprintf(stderr, "\r%s [%.*s%*s] %3d%% %lld/%lld %s", label_.c_str(), filled,
               "################################", kWidth - filled, "",
               static_cast<int>(share * 100), static_cast<long long>(done_),
               static_cast<long long>(total_), unit_.c_str());
}

}  // namespace tw
