// Finds stop strings in text that arrives in pieces, also when one is split over pieces.
//
// The strings are compiled into one automaton (Aho-Corasick) whose work per byte does not depend on
// how many they are. Copies share it: a request's n generations compile once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace tw {

// What a request may ask for: non-empty strings of valid UTF-8 with at most this many bytes
// together, since the automaton takes 24 bytes of memory for each (48 while it is made).
inline constexpr size_t kMaxStopBytes = size_t{1} << 20;
Status validate_stop_strings(std::span<const std::string> stops);

class StopAutomaton;

class StopStrings {
 public:
  // No stop strings: all text passes.
  StopStrings() = default;
  // Empty strings are ignored. keep_stop_string: leave the match in the output (SGLang's
  // no_stop_trim).
  explicit StopStrings(std::vector<std::string> stops, bool keep_stop_string = false);

  struct Result {
    std::string text = {};     // safe to show now
    bool stopped = false;      // a stop string was found; `text` ends before (or after) it
    std::string matched = {};  // which one
  };
  // Text that could be the beginning of a stop string is held back until it is decided. The stop
  // string that begins first wins; of those the longest. Where a longer one or one that began
  // earlier may still come, the decision waits for the text that follows. After a stop, nothing
  // more is found or shown.
  Result push(std::string_view piece);
  // The text still held back, at the end of the generation; it may end in an undecided match.
  Result finish();

 private:
  struct Match {
    size_t begin;  // in pending_
    uint32_t stop;
  };
  Result stop_at(const Match& match);

  std::shared_ptr<const StopAutomaton> automaton_;
  bool keep_stop_string_ = false;
  bool stopped_ = false;
  std::string pending_;
  uint32_t state_ = 0;
  std::optional<Match> best_;
};

}  // namespace tw
