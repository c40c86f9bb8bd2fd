// Splits a model's text, as it comes, into reasoning, content and tool calls.
//
// Parsers take the text in pieces, however they are cut; the result does not depend on the cuts.
// They may hold text back until it is decided what it is, but lose none.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tw {

struct ToolCall {
  std::string name;
  std::string arguments;  // the JSON of an object
  std::string id = {};    // where the format has ids
  bool operator==(const ToolCall&) const = default;
};

struct ParsedText {
  std::string reasoning = {};
  std::string content = {};
  std::vector<ToolCall> calls = {};

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// Adds what came later.
void append(ParsedText&& from, ParsedText& to);

class TextParser {
 public:
  virtual ~TextParser() = default;
  // Appends to `out` what the piece completes.
  virtual void push(std::string_view piece, ParsedText& out) = 0;
  // The text is complete.
  virtual void finish(ParsedText& out) = 0;
};

// Parsers in a row: the content that one finds is the text of the next.
class TextPipeline {
 public:
  // Null stages are left out. Without any, all is content.
  explicit TextPipeline(std::vector<std::unique_ptr<TextParser>> stages);

  ParsedText push(std::string_view piece);
  ParsedText finish();

 private:
  std::vector<std::unique_ptr<TextParser>> stages_;
};

}  // namespace tw
