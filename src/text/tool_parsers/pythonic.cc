// Llama 3.2, 3.3 and 4 and others: a Python list of calls, [f(a=1, b="x"), g()].
#include <algorithm>

#include "text/tool_parsers/bracket_parser.h"
#include "text/tool_parsers/python_literal.h"

namespace tw {
namespace {

std::optional<ToolCall> take_call(PythonReader& reader) {
  const auto name = reader.take_name();
  if (!name || !reader.take('(')) return std::nullopt;
  Json arguments = Json::object();
  while (!reader.take(')')) {
    const auto key = reader.take_name();
    if (!key || !reader.take('=')) return std::nullopt;
    auto value = reader.take_literal();
    if (!value) return std::nullopt;
    arguments[*key] = std::move(*value);
    if (!reader.take(',') && !reader.at(')')) return std::nullopt;
  }
  return ToolCall{.name = *name, .arguments = dump_json(arguments)};
}

std::optional<std::vector<ToolCall>> parse(std::string_view text, const ToolSchemas& tools) {
  PythonReader reader(text);
  std::vector<ToolCall> calls;
  if (!reader.take('[')) return std::nullopt;
  while (!reader.take(']')) {
    auto call = take_call(reader);
    // Without marks, only a function that the request offers is a call.
    if (!call || !tools.has(call->name)) return std::nullopt;
    calls.push_back(std::move(*call));
    if (!reader.take(',') && !reader.at(']')) return std::nullopt;
  }
  if (calls.empty() || !reader.at_end()) return std::nullopt;
  return calls;
}

}  // namespace

ToolParserPtr make_pythonic_parser(ToolSchemasPtr tools) {
  const BracketFormat format{.open = '[',
                             .quotes = "\"'",
                             .begin_mark = "<|python_start|>",
                             .end_mark = "<|python_end|>",
                             .separators = ""};
  return std::make_unique<BracketParser>(
      format, [tools](std::string_view text) { return parse(text, *tools); });
}

}  // namespace tw
