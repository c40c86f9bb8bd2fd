// Errors as clients see them: OpenAI's {"error": {message, type, param, code}} with a status.
#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "core/json.h"
#include "core/status.h"
#include "http/http_message.h"

namespace tw {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::optional<std::string> param = std::nullopt;  // the request field at fault
  std::optional<std::string> code = std::nullopt;   // for programs: "model_not_found"
};

template <typename T>
using ApiExpected = tl::expected<T, ApiError>;

// A 400 that names its field.
ApiError bad_field(std::string field, std::string message);

// The status and type that fit an error of the floors below; `param` when the caller knows it.
ApiError to_api_error(const Error& error, std::optional<std::string> param = std::nullopt);

Json to_json(const ApiError& error);
// With Retry-After where waiting helps.
HttpResponse to_response(const ApiError& error);

// `text` cut to a length that fits a message, between characters.
std::string shorten(std::string text, size_t max_bytes);

}  // namespace tw
