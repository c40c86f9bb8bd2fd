// JSON for the whole program: nlohmann::ordered_json (keys keep their order: chat templates render
// tool schemas as the user wrote them), parsed without exceptions and with a depth limit.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/status.h"

namespace tw {

using Json = nlohmann::ordered_json;

// What a text may cost. Keys are kept in order and found by looking at each, so that building an
// object of n members takes n * n / 2 comparisons of keys: a few megabytes of small keys would
// keep a core busy for hours.
struct JsonLimits {
  int max_depth = 64;
  int64_t max_key_comparisons = int64_t{1} << 32;  // one object of 92,000 members
};
inline constexpr JsonLimits kRequestJsonLimits = {64, int64_t{1} << 25};  // of 8,000 members

// `what` names the source in the message ("config.json", "request body"). A text beyond the limits,
// invalid UTF-8 and trailing text are errors (invalid_argument).
Expected<Json> parse_json(std::string_view text, std::string_view what,
                          const JsonLimits& limits = {});

// Serializes; invalid UTF-8 inside strings becomes U+FFFD instead of an exception.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace tw
