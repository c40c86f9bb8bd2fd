// HTTP requests and responses as values; nothing here knows the transport.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tw {

struct HttpRequest {
  std::string method;         // "GET"
  std::string target;         // as sent: "/v1/models?x=1"
  std::string path;           // decoded, without the query: "/v1/models"
  std::string authorization;  // the header's value, also of X-Api-Key; empty without one
  std::string if_none_match;  // the header's value; empty without one
  std::string body;
  std::string client;  // "127.0.0.1:51234"
  std::string id;      // the header X-Request-Id, or a new one
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // beyond the usual ones
};

// Reason phrase of a status: "Not Found".
std::string_view reason_phrase(int status);

// Whether a client's X-Request-Id can be taken over: 1 to 128 letters, digits and -._:/+=@ .
bool is_request_id(std::string_view text);

// %41 -> A. Malformed escapes stay as they are.
std::string percent_decode(std::string_view text);

}  // namespace tw
