// The program's log: one line per event on stderr. Level and format are set once by the app.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tw {

struct LogOptions {
  std::string level = "info";   // debug, info, warning or error (SGLang's names)
  std::string format = "text";  // for people, or json: an object per line for programs
};

// Unknown names are errors.
Status configure_log(const LogOptions& options);

// Whether configure_log() chose json.
bool logs_json();

// The lines of a format, "text" or "json".
std::unique_ptr<spdlog::formatter> make_log_formatter(bool json);

// While one lives, the lines that this thread logs are about the request of that id. Coroutines
// must not suspend while they hold one: they may go on on another thread.
class LogRequestScope {
 public:
  explicit LogRequestScope(std::string_view request_id);
  ~LogRequestScope();
  LogRequestScope(const LogRequestScope&) = delete;
  LogRequestScope& operator=(const LogRequestScope&) = delete;

 private:
  std::string_view outer_;
};

namespace log = spdlog;

}  // namespace tw
