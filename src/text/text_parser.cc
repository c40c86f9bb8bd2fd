#include "text/text_parser.h"

#include <iterator>
#include <utility>

namespace tw {

void append(ParsedText&& from, ParsedText& to) {
  to.reasoning += from.reasoning;
  to.content += from.content;
  to.calls.insert(to.calls.end(), std::make_move_iterator(from.calls.begin()),
                  std::make_move_iterator(from.calls.end()));
}

TextPipeline::TextPipeline(std::vector<std::unique_ptr<TextParser>> stages)
    : stages_(std::move(stages)) {
  std::erase(stages_, nullptr);
}

ParsedText TextPipeline::push(std::string_view piece) {
  ParsedText all;
  std::string text(piece);
  for (const auto& stage : stages_) {
    ParsedText found;
    stage->push(text, found);
    // The next stage reads the content.
    text = std::exchange(found.content, {});
    append(std::move(found), all);
  }
  all.content = std::move(text);
  return all;
}

ParsedText TextPipeline::finish() {
  ParsedText all;
  std::string text;
  for (const auto& stage : stages_) {
    ParsedText found;
    stage->push(text, found);
    stage->finish(found);
    // The next stage reads the content.
    text = std::exchange(found.content, {});
    append(std::move(found), all);
  }
  all.content = std::move(text);
  return all;
}

}  // namespace tw
