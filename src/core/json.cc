#include "core/json.h"

namespace tw {
namespace {

// The depth is checked before the value is built: building and freeing a deep value costs more.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Expected<Json> parse_json(std::string_view text, std::string_view what, int max_depth) {
  if (const int depth = nesting_depth(text); depth > max_depth) {
    return error(ErrorCode::invalid_argument, "{}: JSON nested {} levels deep; at most {} allowed",
                 what, depth, max_depth);
  }
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& failure) {
    return error(ErrorCode::invalid_argument, "{}: not valid JSON: {}", what, failure.what());
  }
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tw
