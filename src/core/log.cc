#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace tw {

Status configure_log(std::string_view level) {
  spdlog::level::level_enum parsed;
  if (level == "debug") {
    parsed = spdlog::level::debug;
  } else if (level == "info") {
    parsed = spdlog::level::info;
  } else if (level == "warning" || level == "warn") {
    parsed = spdlog::level::warn;
  } else if (level == "error") {
    parsed = spdlog::level::err;
  } else {
    return error(ErrorCode::invalid_argument,
                 "--log-level {}: unknown; use debug, info, warning or error", level);
  }
  static const auto logger = spdlog::stderr_color_mt("tilewright");
  spdlog::set_default_logger(logger);
  spdlog::set_level(parsed);
  spdlog::set_pattern("[%Y-%m-%d %H:%M:%S.%e] %^%l%$ %v");
  return {};
}

}  // namespace tw
