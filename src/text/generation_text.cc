#include "text/generation_text.h"

#include <utility>

namespace tw {

GenerationText::GenerationText(const Tokenizer& tokenizer, GenerationTextOptions options)
    : GenerationText(tokenizer, StopStrings(std::move(options.stops), options.keep_stop_string),
                     options.skip_special_tokens) {}

GenerationText::GenerationText(const Tokenizer& tokenizer, StopStrings stops,
                               bool skip_special_tokens)
    : decoder_(tokenizer, skip_special_tokens), stops_(std::move(stops)) {}

std::string GenerationText::push(int32_t id) {
  if (stopped_) return {};
  return take(stops_.push(decoder_.push(id)));
}

std::string GenerationText::finish() {
  if (stopped_) return {};
  std::string text = take(stops_.push(decoder_.finish()));
  if (!stopped_) text += take(stops_.finish());
  return text;
}

std::string GenerationText::take(StopStrings::Result result) {
  if (result.stopped) {
    stopped_ = true;
    matched_stop_ = std::move(result.matched);
  }
  return std::move(result.text);
}

}  // namespace tw
