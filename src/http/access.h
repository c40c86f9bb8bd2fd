// What every application asks of a request before it answers: method and key.
#pragma once

#include <optional>
#include <string_view>

#include "http/api_error.h"
#include "http/http_message.h"

namespace tw {

// Whether `methods` ("GET, HEAD, OPTIONS") has this one.
bool allows(std::string_view methods, std::string_view method);

// 405, with the Allow header.
HttpResponse method_not_allowed(const HttpRequest& request, std::string_view methods);

// The answer to OPTIONS: browsers ask before they send JSON or a key.
HttpResponse preflight(std::string_view methods);

// A 401 unless the request brings `api_key`, or none is needed (empty).
std::optional<ApiError> check_key(const std::string& api_key, const HttpRequest& request);

}  // namespace tw
