#include "text/tool_parsers/block_parser.h"

#include <algorithm>

namespace tw {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

}  // namespace

size_t length_of_beginning(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
    if (text.ends_with(mark.substr(0, length))) return length;
  }
  return 0;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

void BlockParser::push(std::string_view piece, ParsedText& out) {
  pending_ += piece;
  while (inside_ ? take_inside(out) : take_outside(out)) {
  }
}

void BlockParser::finish(ParsedText& out) {
  if (inside_) {
    // Models end their turn in place of the last mark.
    end_block(pending_.size(), false, out);
  }
  show(pending_, out);
  pending_.clear();
}

// True when there is more to do.
bool BlockParser::take_outside(ParsedText& out) {
  const size_t begin = pending_.find(begin_);
  if (begin == std::string::npos) {
    const size_t decided = pending_.size() - length_of_beginning(pending_, begin_);
    show(std::string_view(pending_).substr(0, decided), out);
    pending_.erase(0, decided);
    return false;
  }
  show(std::string_view(pending_).substr(0, begin), out);
  pending_.erase(0, begin + begin_.size());
  inside_ = true;
  searched_ = 0;
  return true;
}

bool BlockParser::take_inside(ParsedText& out) {
  if (end_.empty()) return false;
  const size_t end = pending_.find(end_, searched_);
  if (end == std::string::npos) {
    searched_ = pending_.size() - std::min(pending_.size(), end_.size() - 1);
    return false;
  }
  end_block(end, true, out);
  return true;
}

// The block is the first `size` bytes of what is pending, and its end mark follows where it is
// closed.
void BlockParser::end_block(size_t size, bool closed, ParsedText& out) {
  const std::string rest = pending_.substr(size + (closed ? end_.size() : 0));
  if (auto calls = parse_(std::string_view(pending_).substr(0, size))) {
    out.calls.insert(out.calls.end(), std::make_move_iterator(calls->begin()),
                     std::make_move_iterator(calls->end()));
    after_call_ = true;
  } else {
    after_call_ = false;
    out.content += begin_ + pending_.substr(0, size) + (closed ? end_ : "");
  }
  pending_ = rest;
  inside_ = false;
}

void BlockParser::show(std::string_view text, ParsedText& out) {
  if (after_call_) {
    const size_t begin = text.find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    after_call_ = false;
  }
  out.content += text;
}

ToolParserPtr make_section_parser(const SectionMarks& marks, ParseCall parse) {
  const auto parse_section =
      [marks, parse](std::string_view text) -> std::optional<std::vector<ToolCall>> {
    std::vector<ToolCall> calls;
    for (text = trim(text); !text.empty(); text = trim(text)) {
      if (!text.starts_with(marks.call_begin)) return std::nullopt;
      text.remove_prefix(marks.call_begin.size());
      const size_t end = text.find(marks.call_end);
      auto call = parse(text.substr(0, end));
      if (!call) return std::nullopt;
      calls.push_back(std::move(*call));
      text = end == std::string_view::npos ? "" : text.substr(end + marks.call_end.size());
    }
    if (calls.empty()) return std::nullopt;
    return calls;
  };
  return std::make_unique<BlockParser>(std::string(marks.section_begin),
                                       std::string(marks.section_end), parse_section);
}

}  // namespace tw
