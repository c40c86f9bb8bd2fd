#include "core/log.h"

#include <fmt/chrono.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <chrono>

#include "core/json.h"

namespace tw {
namespace {

thread_local std::string_view current_request;
bool json_chosen = false;

// " [id]" where the line is about a request.
class RequestIdFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&,
              spdlog::memory_buf_t& line) override {
    if (!current_request.empty())
      fmt::format_to(std::back_inserter(line), " [{}]", current_request);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<RequestIdFlag>();
  }
};

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(message.time);
    const auto rest = std::chrono::floor<std::chrono::milliseconds>(message.time - seconds);
    Json entry = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                                       fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                                       rest.count())},
                  {"level", to_string_view(message.level)},
                  {"message", std::string_view(message.payload.data(), message.payload.size())}};
    if (!current_request.empty()) entry["request_id"] = current_request;
    const std::string text = dump_json(entry);
    line.append(text.data(), text.data() + text.size());
    line.push_back('\n');
  }
  std::unique_ptr<formatter> clone() const override { return std::make_unique<JsonFormatter>(); }

 private:
  static std::string_view to_string_view(spdlog::level::level_enum level) {
    const auto name = spdlog::level::to_string_view(level);
    return {name.data(), name.size()};
  }
};

Expected<spdlog::level::level_enum> parse_level(std::string_view level) {
  if (level == "debug") return spdlog::level::debug;
  if (level == "info") return spdlog::level::info;
  if (level == "warning" || level == "warn") return spdlog::level::warn;
  if (level == "error") return spdlog::level::err;
  return error(ErrorCode::invalid_argument,
               "--log-level {}: unknown; use debug, info, warning or error", level);
}

}  // namespace

LogRequestScope::LogRequestScope(std::string_view request_id) : outer_(current_request) {
  current_request = request_id;
}

LogRequestScope::~LogRequestScope() {
  current_request = outer_;
}

std::unique_ptr<spdlog::formatter> make_log_formatter(bool json) {
  if (json) return std::make_unique<JsonFormatter>();
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<RequestIdFlag>('*').set_pattern("[%Y-%m-%d %H:%M:%S.%e] %^%l%$ %v%*");
  return formatter;
}

Status configure_log(const LogOptions& options) {
  const auto level = parse_level(options.level);
  if (!level) return tl::unexpected(level.error());
  if (options.format != "text" && options.format != "json") {
    return error(ErrorCode::invalid_argument, "--log-format {}: unknown; use text or json",
                 options.format);
  }
  json_chosen = options.format == "json";
  static const auto logger = spdlog::stderr_color_mt("tilewright");
  spdlog::set_default_logger(logger);
  spdlog::set_level(*level);
  spdlog::set_formatter(make_log_formatter(json_chosen));
  return {};
}

bool logs_json() {
  return json_chosen;
}

}  // namespace tw
