// Qwen3-Coder and Qwen3.5:
// <tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>\n</tool_call>.
#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/element_calls.h"

namespace tw {
namespace {

constexpr ElementMarks kMarks{.call_begin = "<function=",
                              .call_end = "</function>",
                              .value_begin = "<parameter=",
                              .value_end = "</parameter>",
                              .name_end = ">"};

}  // namespace

ToolParserPtr make_qwen3_coder_parser(ToolSchemasPtr tools) {
  return std::make_unique<BlockParser>(
      "<tool_call>", "</tool_call>",
      [tools](std::string_view text) { return calls_from_elements(text, kMarks, *tools); });
}

}  // namespace tw
