// JSON for the whole program: nlohmann::ordered_json (keys keep their order: chat templates render
// tool schemas as the user wrote them), parsed without exceptions and with a depth limit.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/status.h"

namespace tw {

using Json = nlohmann::ordered_json;

// `what` names the source in the message ("config.json", "request body"). Nesting deeper than
// `max_depth`, invalid UTF-8 and trailing text are errors (invalid_argument).
Expected<Json> parse_json(std::string_view text, std::string_view what, int max_depth = 64);

// Serializes; invalid UTF-8 inside strings becomes U+FFFD instead of an exception.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace tw
