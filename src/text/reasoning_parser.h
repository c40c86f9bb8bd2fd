// Tells a model's reasoning from its answer: <think> ... </think> and its relatives.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/text_parser.h"

namespace tw {

struct ReasoningFormat {
  std::string_view name;  // of --reasoning-parser
  std::string_view begin;
  std::string_view end;
  bool starts_inside;  // the text begins with reasoning, without its mark
  bool is_harmony = false;
};

// Null when unknown.
const ReasoningFormat* find_reasoning_format(std::string_view name);
// All names, for messages.
std::string reasoning_format_names();

// Where the text after `prompt` begins: chat templates may open the reasoning, or open and close it
// where none is wanted.
enum class ReasoningStart {
  inside,
  outside,  // there is none
  unknown,  // as the model begins
};
ReasoningStart reasoning_start(const ReasoningFormat& format, std::string_view prompt);

// White space next to the marks is dropped with them.
std::unique_ptr<TextParser> make_reasoning_parser(const ReasoningFormat& format,
                                                  ReasoningStart start);

}  // namespace tw
