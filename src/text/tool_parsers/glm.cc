// GLM-4.5 and later:
// <tool_call>NAME\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>...</tool_call>. Values are text
// whose type the function's schema knows.
#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {
namespace {

constexpr std::string_view kKeyBegin = "<arg_key>";
constexpr std::string_view kKeyEnd = "</arg_key>";
constexpr std::string_view kValueBegin = "<arg_value>";
constexpr std::string_view kValueEnd = "</arg_value>";

// Takes what stands between two marks from the beginning of `text`.
std::optional<std::string_view> take_between(std::string_view& text, std::string_view begin,
                                             std::string_view end) {
  text = trim(text);
  if (!text.starts_with(begin)) return std::nullopt;
  const size_t last = text.find(end, begin.size());
  if (last == std::string_view::npos) return std::nullopt;
  const std::string_view inside = text.substr(begin.size(), last - begin.size());
  text.remove_prefix(last + end.size());
  return inside;
}

std::optional<std::vector<ToolCall>> parse(std::string_view text, const ToolSchemas& tools) {
  const size_t head = std::min(text.find(kKeyBegin), text.size());
  const std::string_view name = trim(text.substr(0, head));
  if (name.empty() || name.find_first_of("<>{}\n") != std::string_view::npos) return std::nullopt;
  Json arguments = Json::object();
  for (text = trim(text.substr(head)); !text.empty(); text = trim(text)) {
    const auto key = take_between(text, kKeyBegin, kKeyEnd);
    if (!key) return std::nullopt;
    const auto value = take_between(text, kValueBegin, kValueEnd);
    if (!value) return std::nullopt;
    const std::string_view parameter = trim(*key);
    arguments[std::string(parameter)] = typed_value(*value, tools.parameter(name, parameter));
  }
  return std::vector<ToolCall>{{.name = std::string(name), .arguments = dump_json(arguments)}};
}

}  // namespace

ToolParserPtr make_glm_parser(ToolSchemasPtr tools) {
  return std::make_unique<BlockParser>(
      "<tool_call>", "</tool_call>",
      [tools](std::string_view text) { return parse(text, *tools); });
}

}  // namespace tw
