#include "http/access.h"

#include <fmt/format.h>

#include <algorithm>

namespace tw {
namespace {

// Takes as long for a near miss as for a far one.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |=
        static_cast<unsigned char>(given[i] ^ secret[secret.empty() ? 0 : i % secret.size()]);
  }
  return difference == 0;
}

bool brings_key(const std::string& key, std::string_view given) {
  constexpr std::string_view kScheme = "bearer ";
  const bool is_bearer =
      given.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), given.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
  return is_bearer && equal_in_constant_time(given.substr(kScheme.size()), key);
}

}  // namespace

bool allows(std::string_view methods, std::string_view method) {
  for (std::string_view rest = methods; !rest.empty();) {
    const size_t comma = rest.find(", ");
    if (rest.substr(0, comma) == method) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 2);
  }
  return false;
}

HttpResponse method_not_allowed(const HttpRequest& request, std::string_view methods) {
  HttpResponse response =
      to_response({.status = 405,
                   .message = fmt::format("{} {}: the method must be one of {}", request.method,
                                          shorten(request.path, 200), methods),
                   .code = "method_not_allowed"});
  response.headers.emplace_back("Allow", methods);
  return response;
}

HttpResponse preflight(std::string_view methods) {
  HttpResponse response{.status = 204};
  response.headers = {{"Allow", std::string(methods)},
                      {"Access-Control-Allow-Methods", std::string(methods)},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
                      {"Access-Control-Max-Age", "86400"}};
  return response;
}

std::optional<ApiError> check_key(const std::string& api_key, const HttpRequest& request) {
  if (api_key.empty() || brings_key(api_key, request.authorization)) return std::nullopt;
  return ApiError{.status = 401,
                  .message = request.authorization.empty()
                                 ? "no API key given; send Authorization: Bearer KEY"
                                 : "the API key is not the server's",
                  .type = "authentication_error",
                  .code = "invalid_api_key"};
}

}  // namespace tw
