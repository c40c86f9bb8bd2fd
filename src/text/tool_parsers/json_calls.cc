#include "text/tool_parsers/json_calls.h"

#include <algorithm>

#include "text/tool_parsers/block_parser.h"

namespace tw {
namespace {

std::optional<Json> parse(std::string_view text) {
  auto json = parse_json(text, "tool call", kRequestJsonLimits);
  if (!json) return std::nullopt;
  return std::move(*json);
}

bool allows_type(const Json& schema, std::string_view type) {
  if (!schema.is_object()) return false;
  const auto found = schema.find("type");
  if (found != schema.end()) {
    if (found->is_string()) return *found == type;
    return found->is_array() && std::find(found->begin(), found->end(), type) != found->end();
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    const auto options = schema.find(choice);
    if (options == schema.end() || !options->is_array()) continue;
    if (std::any_of(options->begin(), options->end(),
                    [&](const Json& option) { return allows_type(option, type); })) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<ToolCall> call_from_json(const Json& value) {
  if (!value.is_object()) return std::nullopt;
  const auto name = value.find("name");
  if (name == value.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  ToolCall call{.name = name->get<std::string>(), .arguments = "{}"};
  const auto id = value.find("id");
  if (id != value.end() && id->is_string()) call.id = id->get<std::string>();
  for (const char* key : {"arguments", "parameters"}) {
    const auto found = value.find(key);
    if (found == value.end()) continue;
    if (found->is_object()) {
      call.arguments = dump_json(*found);
    } else if (found->is_string()) {
      auto arguments = arguments_json(found->get_ref<const std::string&>());
      if (!arguments) return std::nullopt;
      call.arguments = std::move(*arguments);
    } else if (!found->is_null()) {
      return std::nullopt;
    }
    break;
  }
  return call;
}

std::optional<std::vector<ToolCall>> calls_from_json(std::string_view text) {
  const auto json = parse(text);
  if (!json) return std::nullopt;
  std::vector<ToolCall> calls;
  for (const Json& entry : json->is_array() ? *json : Json::array({*json})) {
    auto call = call_from_json(entry);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  }
  return calls;
}

std::optional<std::string> arguments_json(std::string_view text) {
  if (trim(text).empty()) return "{}";
  const auto json = parse(text);
  if (!json || !json->is_object()) return std::nullopt;
  return dump_json(*json);
}

Json typed_value(std::string_view text, const Json* schema) {
  if (schema && allows_type(*schema, "string")) return std::string(text);
  auto json = parse(text);
  return json ? std::move(*json) : Json(std::string(text));
}

}  // namespace tw
