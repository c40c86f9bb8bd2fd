// Ownership and errors at the border to the Rust text library (text-ffi/include/tw_text.h).
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"
#include "tw_text.h"

namespace tw {

// Copies a string of the Rust library and gives it back.
std::string take_string(tw_text_string string);

// The error of a failed call: its code, and its message after `what` ("tokenizer.json: ...").
tl::unexpected<Error> text_error(tw_text_status status, tw_text_string message,
                                 std::string_view what);

}  // namespace tw
