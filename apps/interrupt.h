// Ctrl-C as a question instead of an end: while an Interrupt lives, SIGINT only sets its flag.
#pragma once

#include <atomic>
#include <csignal>

namespace tw {

class Interrupt {
 public:
  Interrupt() {
    flag() = 0;
    previous_ = std::signal(SIGINT, [](int) { flag() = 1; });
  }
  ~Interrupt() { std::signal(SIGINT, previous_); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const { return flag() != 0; }
  void reset() { flag() = 0; }

 private:
  // Signal handlers reach only static storage.
  static volatile std::sig_atomic_t& flag() {
    static volatile std::sig_atomic_t value = 0;
    return value;
  }
  void (*previous_)(int) = SIG_DFL;
};

}  // namespace tw
