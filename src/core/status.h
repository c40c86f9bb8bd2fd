// Errors that a user or an input can cause, as values.
//
// A function that can fail for reasons outside the program returns Expected<T> or Status. The
// message names the culprit (file, tensor, field, flag), the value found and what would be valid.
// Bugs inside the program are assertions (core/check.h), not errors.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tw {

enum class ErrorCode {
  invalid_argument,    // a flag, a field or a request that cannot be right        -> HTTP 400
  not_found,           // a file, model, tensor or route that does not exist       -> HTTP 404
  unsupported,         // well formed, but not something this build can do         -> HTTP 400
  corrupt_data,        // a file that contradicts itself or its format
  resource_exhausted,  // memory, pages, queue places                              -> HTTP 429/503
  unavailable,         // shutting down, engine stopped                            -> HTTP 503
  cancelled,           // the client went away or asked for it
  internal,            // a failure of a library or the system, with its own words -> HTTP 500
};

const char* to_string(ErrorCode code);

struct Error {
  ErrorCode code;
  std::string message;
};

template <typename T>
using Expected = tl::expected<T, Error>;
using Status = Expected<void>;

// return error(ErrorCode::not_found, "{}: no such file", path);
template <typename... Args>
tl::unexpected<Error> error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

// Passes another call's error on: if (!x) return forward_error(x);
template <typename T>
tl::unexpected<Error> forward_error(Expected<T>& failed) {
  return tl::unexpected(std::move(failed.error()));
}

}  // namespace tw
