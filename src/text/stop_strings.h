// Finds stop strings in text that arrives in pieces, also when one is split over pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tw {

class StopStrings {
 public:
  // keep_stop_string: leave the match in the output (SGLang's no_stop_trim).
  explicit StopStrings(std::vector<std::string> stops, bool keep_stop_string = false);

  struct Result {
    std::string text;          // safe to show now
    bool stopped = false;      // a stop string was found; `text` ends before (or after) it
    std::string matched;       // which one
  };
  // Text that could be the beginning of a stop string is held back until it is decided. The stop
  // string that begins first wins; of those the longest.
  Result push(std::string_view piece);
  // The text still held back, at the end of the generation.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  bool keep_stop_string_;
  std::string pending_;
};

}  // namespace tw
