// Calls that are JSON objects: {"name": ..., "arguments": {...}}.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/tool_parsers/tool_parser.h"

namespace tw {

// An object with a name and, as "arguments" or "parameters", an object or its JSON text (absent:
// no arguments). Nothing for anything else.
std::optional<ToolCall> call_from_json(const Json& value);

// JSON that is one such object or an array of them.
std::optional<std::vector<ToolCall>> calls_from_json(std::string_view text);

// The JSON of an object, written anew; nothing for anything else.
std::optional<std::string> arguments_json(std::string_view text);

// A parameter that a format gives as text: of a schema's type string as it is, else the JSON that
// it reads as, else as it is.
Json typed_value(std::string_view text, const Json* schema);

}  // namespace tw
