// Identifiers of requests, answers and their parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace tw {

// From any thread.
class Identifiers {
 public:
  Identifiers();

  // A new one: "chatcmpl-" and 24 random hex digits.
  std::string make(std::string_view prefix);

 private:
  std::atomic<uint64_t> counter_;
};

}  // namespace tw
