// MiniMax-M2:
// <minimax:tool_call><invoke name="f"><parameter
// name="k">v</parameter></invoke></minimax:tool_call>.
#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/element_calls.h"

namespace tw {
namespace {

constexpr ElementMarks kMarks{.call_begin = "<invoke name=\"",
                              .call_end = "</invoke>",
                              .value_begin = "<parameter name=\"",
                              .value_end = "</parameter>",
                              .name_end = "\">"};

}  // namespace

ToolParserPtr make_minimax_parser(ToolSchemasPtr tools) {
  return std::make_unique<BlockParser>(
      "<minimax:tool_call>", "</minimax:tool_call>",
      [tools](std::string_view text) { return calls_from_elements(text, kMarks, *tools); });
}

}  // namespace tw
