#include "http/api_error.h"

namespace tw {
namespace {

// Messages may quote the request, which may be large.
constexpr size_t kMaxMessageBytes = 1000;

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::resource_exhausted:
      return 429;
    case ErrorCode::unavailable:
    case ErrorCode::cancelled:
      return 503;
    case ErrorCode::corrupt_data:
    case ErrorCode::internal:
      return 500;
  }
  return 500;
}

std::string type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "service_unavailable";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

ApiError bad_field(std::string field, std::string message) {
  return {.message = std::move(message), .param = std::move(field)};
}

ApiError to_api_error(const Error& error, std::optional<std::string> param) {
  const int status = http_status(error.code);
  return {.status = status,
          .message = error.message,
          .type = type_of(status),
          .param = std::move(param)};
}

Json to_json(const ApiError& error) {
  const auto or_null = [](const std::optional<std::string>& text) {
    return text ? Json(*text) : Json(nullptr);
  };
  return {{"error",
           {{"message", shorten(error.message, kMaxMessageBytes)},
            {"type", error.type},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

HttpResponse to_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = dump_json(to_json(error))};
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::string shorten(std::string text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

}  // namespace tw
