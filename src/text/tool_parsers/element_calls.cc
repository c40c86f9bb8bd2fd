#include "text/tool_parsers/element_calls.h"

#include "text/tool_parsers/block_parser.h"
#include "text/tool_parsers/json_calls.h"

namespace tw {
namespace {

// Takes `begin`, a name and `name_end` from the beginning of `text`.
std::optional<std::string_view> take_name(std::string_view& text, std::string_view begin,
                                          std::string_view name_end) {
  if (!text.starts_with(begin)) return std::nullopt;
  const size_t end = text.find(name_end, begin.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view name = trim(text.substr(begin.size(), end - begin.size()));
  text.remove_prefix(end + name_end.size());
  if (name.empty() || name.find('\n') != std::string_view::npos) return std::nullopt;
  return name;
}

// Templates write a value on lines of its own.
std::string_view without_line_ends(std::string_view value) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  return value;
}

std::optional<ToolCall> take_call(std::string_view& text, const ElementMarks& marks,
                                  const ToolSchemas& tools) {
  const auto name = take_name(text, marks.call_begin, marks.name_end);
  if (!name) return std::nullopt;
  Json arguments = Json::object();
  for (text = trim(text); !text.empty() && !text.starts_with(marks.call_end); text = trim(text)) {
    const auto key = take_name(text, marks.value_begin, marks.name_end);
    if (!key) return std::nullopt;
    const size_t end = text.find(marks.value_end);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view value = without_line_ends(text.substr(0, end));
    arguments[std::string(*key)] = typed_value(value, tools.parameter(*name, *key));
    text.remove_prefix(end + marks.value_end.size());
  }
  if (!text.empty()) text.remove_prefix(marks.call_end.size());
  return ToolCall{.name = std::string(*name), .arguments = dump_json(arguments)};
}

}  // namespace

std::optional<std::vector<ToolCall>> calls_from_elements(std::string_view text,
                                                         const ElementMarks& marks,
                                                         const ToolSchemas& tools) {
  std::vector<ToolCall> calls;
  for (text = trim(text); !text.empty(); text = trim(text)) {
    auto call = take_call(text, marks, tools);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace tw
