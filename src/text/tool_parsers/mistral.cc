// Mistral. Older: [TOOL_CALLS] [{"name": "f", "arguments": {...}, "id": "..."}, ...]. Newer, one
// after the other: [TOOL_CALLS]f[CALL_ID]abc[ARGS]{...}, where [CALL_ID] may be missing.
#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {
namespace {

constexpr std::string_view kMark = "[TOOL_CALLS]";
constexpr std::string_view kId = "[CALL_ID]";
constexpr std::string_view kArguments = "[ARGS]";

std::optional<ToolCall> parse_call(std::string_view text) {
  const size_t end_of_head = text.find(kArguments);
  // Some templates leave [ARGS] out: f{...}.
  const size_t brace = text.find('{');
  const size_t end = std::min(end_of_head, brace);
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view head = text.substr(0, end);
  const std::string_view body = text.substr(end == end_of_head ? end + kArguments.size() : end);
  ToolCall call;
  if (const size_t id = head.find(kId); id != std::string_view::npos) {
    call.id = trim(head.substr(id + kId.size()));
    head = head.substr(0, id);
  }
  call.name = trim(head);
  auto arguments = arguments_json(body);
  if (call.name.empty() || !arguments) return std::nullopt;
  call.arguments = std::move(*arguments);
  return call;
}

std::optional<std::vector<ToolCall>> parse(std::string_view text) {
  if (trim(text).starts_with('[')) return calls_from_json(text);
  std::vector<ToolCall> calls;
  while (!text.empty()) {
    const size_t next = text.find(kMark);
    auto call = parse_call(text.substr(0, next));
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
    text = next == std::string_view::npos ? std::string_view() : text.substr(next + kMark.size());
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace

ToolParserPtr make_mistral_parser(ToolSchemasPtr tools) {
  // Nothing follows the calls.
  return std::make_unique<BlockParser>(std::string(kMark), "", parse);
}

}  // namespace tw
