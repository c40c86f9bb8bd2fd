// The text of one generation: token ids in, text that may be shown out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace tw {

struct GenerationTextOptions {
  std::vector<std::string> stops = {};
  bool keep_stop_string = false;    // leave the stop string in the text (SGLang's no_stop_trim)
  bool skip_special_tokens = true;  // show no text for them
};

// Decodes incrementally and looks for stop strings. Used by one thread at a time.
class GenerationText {
 public:
  GenerationText(const Tokenizer& tokenizer, GenerationTextOptions options);
  // Stop strings compiled before, for several generations of one request.
  GenerationText(const Tokenizer& tokenizer, StopStrings stops, bool skip_special_tokens);

  // The text that is safe to show after this id; empty once stopped.
  std::string push(int32_t id);
  // What is still held back when the generation ends by itself. It may end in a stop string.
  std::string finish();

  // A stop string was found: the generation should end, its text is complete.
  bool stopped() const { return stopped_; }
  // Which one; empty while not stopped.
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  std::string take(StopStrings::Result result);

  IncrementalDecoder decoder_;
  StopStrings stops_;
  bool stopped_ = false;
  std::string matched_stop_;
};

}  // namespace tw
