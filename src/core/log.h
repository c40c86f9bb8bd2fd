// The program's log: one line per event on stderr. Levels and format are set once by the app.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

#include "core/status.h"

namespace tw {

// level: debug, info, warning, error (SGLang's --log-level names). Unknown names are errors.
Status configure_log(std::string_view level);

namespace log = spdlog;

}  // namespace tw
