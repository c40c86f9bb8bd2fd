// Several hosts that compute one model: options, and what does not go together with them.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>

#include "core/status.h"

namespace tw {

struct ModelOptions;

struct HostOptions {
  int num_hosts = 1;
  double timeout_seconds = 10;

  // Declares the options, in SGLang's spelling.
  void add_to(CLI::App& command);

  // What the other options ask for and several hosts can't do.
  static Status check(const ModelOptions& options);

  std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1e3));
  }
};

}  // namespace tw
