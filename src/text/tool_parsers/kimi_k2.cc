// Kimi K2: a section of calls, each "functions.NAME:INDEX", the mark of the arguments, JSON. What
// comes before the arguments is the call's id, which the chat template expects back.
#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {
namespace {

constexpr std::string_view kArguments = "<|tool_call_argument_begin|>";

std::optional<ToolCall> parse_call(std::string_view text) {
  const size_t mark = text.find(kArguments);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string_view id = trim(text.substr(0, mark));
  std::string_view name = id;
  constexpr std::string_view kPrefix = "functions.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.rfind(':'));
  auto arguments = arguments_json(text.substr(mark + kArguments.size()));
  if (name.empty() || !arguments) return std::nullopt;
  return ToolCall{
      .name = std::string(name), .arguments = std::move(*arguments), .id = std::string(id)};
}

}  // namespace

ToolParserPtr make_kimi_k2_parser(ToolSchemasPtr tools) {
  return make_section_parser({.section_begin = "<|tool_calls_section_begin|>",
                              .section_end = "<|tool_calls_section_end|>",
                              .call_begin = "<|tool_call_begin|>",
                              .call_end = "<|tool_call_end|>"},
                             parse_call);
}

}  // namespace tw
