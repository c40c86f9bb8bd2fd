#include "text/tool_parsers/bracket_parser.h"

#include <algorithm>

namespace tw {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

bool begins_with(std::string_view text, std::string_view mark) {
  return !mark.empty() && text.starts_with(mark);
}

// The whole text could be the beginning of the mark.
bool may_become(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

}  // namespace

void BracketParser::push(std::string_view piece, ParsedText& out) {
  pending_ += piece;
  for (bool more = true; more;) {
    switch (state_) {
      case State::before_call:
        more = take_before_call(out);
        break;
      case State::in_call:
        more = take_call(out);
        break;
      case State::in_content:
        more = take_content(out);
        break;
    }
  }
}

void BracketParser::finish(ParsedText& out) {
  // White space after a call belongs to the format; a call without its end is none.
  if (!after_call_ || !trim(pending_).empty()) out.content += pending_;
  pending_.clear();
}

// True when there is more to do.
bool BracketParser::take_before_call(ParsedText& out) {
  const std::string between =
      std::string(kWhiteSpace) + (after_call_ ? std::string(format_.separators) : "");
  const size_t begin = pending_.find_first_not_of(between);
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(pending_).substr(begin);
  for (const std::string_view mark : {format_.begin_mark, format_.end_mark}) {
    if (begins_with(rest, mark)) {
      pending_.erase(0, begin + mark.size());
      return true;
    }
    if (may_become(rest, mark)) return false;
  }
  if (rest.front() == format_.open) {
    pending_.erase(0, begin);
    state_ = State::in_call;
    scanned_ = 0;
    depth_ = 0;
    quote_ = 0;
    escaped_ = false;
  } else {
    state_ = State::in_content;
  }
  return true;
}

// One past the call's last bracket; npos while it is open.
size_t BracketParser::end_of_call() {
  for (; scanned_ < pending_.size(); ++scanned_) {
    const char c = pending_[scanned_];
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
    } else if (format_.quotes.find(c) != std::string_view::npos) {
      quote_ = c;
    } else if (c == '{' || c == '[' || c == '(') {
      ++depth_;
    } else if ((c == '}' || c == ']' || c == ')') && --depth_ == 0) {
      return scanned_ + 1;
    }
  }
  return std::string::npos;
}

bool BracketParser::take_call(ParsedText& out) {
  const size_t end = end_of_call();
  if (end == std::string::npos) return false;
  if (auto calls = parse_(std::string_view(pending_).substr(0, end))) {
    out.calls.insert(out.calls.end(), std::make_move_iterator(calls->begin()),
                     std::make_move_iterator(calls->end()));
    after_call_ = true;
    state_ = State::before_call;
  } else {
    out.content += pending_.substr(0, end);
    after_call_ = false;
    state_ = State::in_content;
  }
  pending_.erase(0, end);
  return true;
}

bool BracketParser::take_content(ParsedText& out) {
  after_call_ = false;
  const std::string_view mark = format_.begin_mark;
  const size_t begin = mark.empty() ? std::string::npos : pending_.find(mark);
  if (begin != std::string::npos) {
    out.content += pending_.substr(0, begin);
    pending_.erase(0, begin + mark.size());
    state_ = State::before_call;
    return true;
  }
  const size_t decided = pending_.size() - length_of_beginning(pending_, mark);
  out.content += pending_.substr(0, decided);
  pending_.erase(0, decided);
  return false;
}

}  // namespace tw
