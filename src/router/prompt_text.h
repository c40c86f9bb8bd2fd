// What of a request decides over its prefix in a worker's cache.
#pragma once

#include <string>
#include <string_view>

namespace tw {

// The model or adapter, tools and messages or prompt of a body of any of the endpoints that
// generate, in the order in which templates put them. A conversation's next request begins with the
// text of the one before. Empty where the body is no JSON object, has none of them, or has
// megabytes.
std::string prompt_text(std::string_view body);

}  // namespace tw
