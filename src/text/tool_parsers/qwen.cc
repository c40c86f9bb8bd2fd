// Qwen 2.5, Qwen 3 and Hermes: <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>.
#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {

ToolParserPtr make_qwen_parser(ToolSchemasPtr tools) {
  return std::make_unique<BlockParser>("<tool_call>", "</tool_call>", calls_from_json);
}

}  // namespace tw
