// What most formats share: calls stand between two marks, <tool_call>...</tool_call>.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "text/tool_parsers/tool_parser.h"

namespace tw {

// Text outside of blocks is content; a block is handed on when it is complete.
class BlockParser final : public TextParser {
 public:
  // The calls of a block (without its marks); nothing when it is no call after all.
  using ParseBlock = std::function<std::optional<std::vector<ToolCall>>(std::string_view)>;

  // `end` may be empty: the block then ends with the text.
  BlockParser(std::string begin, std::string end, ParseBlock parse)
      : begin_(std::move(begin)), end_(std::move(end)), parse_(std::move(parse)) {}

  void push(std::string_view piece, ParsedText& out) override;
  void finish(ParsedText& out) override;

 private:
  bool take_outside(ParsedText& out);
  bool take_inside(ParsedText& out);
  void show(std::string_view text, ParsedText& out);
  void end_block(size_t size, bool closed, ParsedText& out);

  const std::string begin_;
  const std::string end_;
  const ParseBlock parse_;
  std::string pending_;  // not decided yet; inside, from after the mark on
  size_t searched_ = 0;  // of pending_, inside: where `end_` cannot begin before
  bool inside_ = false;
  bool after_call_ = false;  // white space that follows belongs to the format
};

// A section of calls with marks around each: a block that is nothing but calls.
struct SectionMarks {
  std::string_view section_begin, section_end;
  std::string_view call_begin, call_end;
};
using ParseCall = std::function<std::optional<ToolCall>(std::string_view)>;
ToolParserPtr make_section_parser(const SectionMarks& marks, ParseCall parse);

// How many bytes at the end of `text` could begin `mark`.
size_t length_of_beginning(std::string_view text, std::string_view mark);

std::string_view trim(std::string_view text);

}  // namespace tw
