// Formats without marks around a call: a text that begins with a bracket may be one.
#pragma once

#include <string>
#include <string_view>

#include "text/tool_parsers/block_parser.h"

namespace tw {

struct BracketFormat {
  char open = '{';
  std::string_view quotes = "\"";     // that begin strings, in which brackets do not count
  std::string_view begin_mark = "";   // may come before the calls, also after content
  std::string_view end_mark = "";     // may come after them
  std::string_view separators = ";";  // between calls, beside white space
};

// Holds back what begins with the bracket until it is closed. Anywhere else the text is content.
class BracketParser final : public TextParser {
 public:
  BracketParser(const BracketFormat& format, BlockParser::ParseBlock parse)
      : format_(format), parse_(std::move(parse)) {}

  void push(std::string_view piece, ParsedText& out) override;
  void finish(ParsedText& out) override;

 private:
  enum class State {
    before_call,  // at the beginning, after a mark or after a call
    in_call,
    in_content,
  };
  bool take_before_call(ParsedText& out);
  bool take_call(ParsedText& out);
  bool take_content(ParsedText& out);
  size_t end_of_call();

  const BracketFormat format_;
  const BlockParser::ParseBlock parse_;
  State state_ = State::before_call;
  std::string pending_;
  bool after_call_ = false;
  // Of the call in pending_.
  size_t scanned_ = 0;
  int64_t depth_ = 0;
  char quote_ = 0;  // that ends the string; 0: outside
  bool escaped_ = false;
};

}  // namespace tw
