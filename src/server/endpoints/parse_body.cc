#include "server/endpoints/endpoints.h"

namespace tw {

ApiExpected<Json> parse_body(const std::string& body) {
  auto json = parse_json(body, "the request body", kRequestJsonLimits);
  if (!json) return tl::unexpected(to_api_error(json.error()));
  return std::move(*json);
}

}  // namespace tw
