// Llama 3.x: {"name": "f", "parameters": {...}}, several with ";" between, <|python_tag|> perhaps
// before. Without marks, only a function that the request offers is a call.
#include "text/tool_parsers/bracket_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {

ToolParserPtr make_llama3_parser(ToolSchemasPtr tools) {
  const BracketFormat format{.open = '{', .begin_mark = "<|python_tag|>"};
  return std::make_unique<BracketParser>(
      format, [tools](std::string_view text) -> std::optional<std::vector<ToolCall>> {
        auto calls = calls_from_json(text);
        if (!calls || !tools->has(calls->front().name)) return std::nullopt;
        return calls;
      });
}

}  // namespace tw
