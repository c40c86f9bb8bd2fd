#include <algorithm>

#include "server/endpoints/endpoints.h"

namespace tw {

ApiExpected<Json> parse_body(const std::string& body) {
  auto json = parse_json(body, "the request body", kRequestJsonLimits);
  if (!json) return tl::unexpected(to_api_error(json.error()));
  return std::move(*json);
}

bool may_ask_for_grammar(std::string_view body) {
  constexpr std::string_view kFields[] = {"response_format", "json_schema", "regex", "ebnf",
                                          "structural_tag",  "tool_choice"};
  return std::any_of(std::begin(kFields), std::end(kFields), [body](std::string_view field) {
    return body.find(field) != std::string_view::npos;
  });
}

}  // namespace tw
