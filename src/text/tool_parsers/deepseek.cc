// DeepSeek V3, R1 and V3.1: a section of calls, each between marks. V3 writes
// "function<sep>NAME\n```json\n{...}\n```", V3.1 "NAME<sep>{...}".
#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {
namespace {

constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kFence = "```";

std::optional<ToolCall> parse_call(std::string_view text) {
  const size_t separator = text.find(kSeparator);
  if (separator == std::string_view::npos) return std::nullopt;
  std::string_view name = trim(text.substr(0, separator));
  std::string_view body = trim(text.substr(separator + kSeparator.size()));
  if (name == "function" && !body.starts_with('{')) {
    const size_t fence = body.find(kFence);
    if (fence == std::string_view::npos) return std::nullopt;
    name = trim(body.substr(0, fence));
    body.remove_prefix(fence + kFence.size());
    if (body.starts_with("json")) body.remove_prefix(4);
    if (body.ends_with(kFence)) body.remove_suffix(kFence.size());
  }
  auto arguments = arguments_json(body);
  if (name.empty() || !arguments) return std::nullopt;
  return ToolCall{.name = std::string(name), .arguments = std::move(*arguments)};
}

}  // namespace

ToolParserPtr make_deepseek_parser(ToolSchemasPtr tools) {
  return make_section_parser({.section_begin = "<｜tool▁calls▁begin｜>",
                              .section_end = "<｜tool▁calls▁end｜>",
                              .call_begin = "<｜tool▁call▁begin｜>",
                              .call_end = "<｜tool▁call▁end｜>"},
                             parse_call);
}

}  // namespace tw
