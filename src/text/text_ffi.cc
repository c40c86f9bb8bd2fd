#include "text/text_ffi.h"

namespace tw {
namespace {

ErrorCode to_error_code(tw_text_status status) {
  switch (status) {
    case TW_TEXT_INVALID_ARGUMENT:
      return ErrorCode::invalid_argument;
    case TW_TEXT_CORRUPT_DATA:
      return ErrorCode::corrupt_data;
    case TW_TEXT_OK:
    case TW_TEXT_INTERNAL:
      break;
  }
  return ErrorCode::internal;
}

}  // namespace

std::string take_string(tw_text_string string) {
  std::string copy(string.data, string.size);
  tw_text_string_free(string);
  return copy;
}

tl::unexpected<Error> text_error(tw_text_status status, tw_text_string message,
                                 std::string_view what) {
  const std::string reason = take_string(message);
  if (what.empty()) return error(to_error_code(status), "{}", reason);
  return error(to_error_code(status), "{}: {}", what, reason);
}

}  // namespace tw
