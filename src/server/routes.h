// Which endpoint answers which path.
#pragma once

#include <span>
#include <string_view>

#include "server/endpoints/endpoints.h"

namespace tw {

struct Route {
  std::string_view path;     // of a prefix route, what comes before the parameter
  std::string_view methods;  // "GET, HEAD, OPTIONS": the Allow header
  Endpoint endpoint;
  bool is_prefix = false;
  bool is_open = false;   // needs no API key
  bool is_quiet = false;  // asked every few seconds: in the access log at debug level
};

// The route of a path, whatever the method; null for unknown ones.
const Route* find_route(std::string_view path);

std::span<const Route> all_routes();

// Answers one request: OPTIONS, unknown paths, wrong methods, missing keys, draining, and else the
// endpoint. `route` is find_route(request.path).
asio::awaitable<void> dispatch(Service& service, const Route* route, HttpRequest& request,
                               Responder& responder);

}  // namespace tw
