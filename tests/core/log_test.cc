#include "core/log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>
#include <string>

#include "core/json.h"

namespace tw {
namespace {

TEST(Log, UnknownNamesListTheKnown) {
  EXPECT_TRUE(configure_log({.level = "warning"}));
  auto status = configure_log({.level = "loud"});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("debug, info"), std::string::npos);
  status = configure_log({.format = "xml"});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("xml: unknown; use text or json"), std::string::npos);
}

std::string line_of(bool json, const std::string& message, std::string_view request_id) {
  std::ostringstream text;
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(text);
  sink->set_formatter(make_log_formatter(json));
  spdlog::logger logger("test", sink);
  const LogRequestScope about(request_id);
  logger.warn("{}", message);
  return text.str();
}

TEST(Log, TextLinesNameTheirRequest) {
  EXPECT_TRUE(line_of(false, "hot", "").ends_with("] warning hot\n"));
  EXPECT_TRUE(line_of(false, "hot", "r-1").ends_with("] warning hot [r-1]\n"));
}

TEST(Log, JsonLinesAreObjects) {
  const std::string line = line_of(true, "a \"quote\",\na line and \xff no UTF-8", "r-1");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto entry = parse_json(line, "line");
  ASSERT_TRUE(entry) << line;
  EXPECT_EQ(entry->at("level"), "warning");
  EXPECT_EQ(entry->at("message"), "a \"quote\",\na line and \xef\xbf\xbd no UTF-8");
  EXPECT_EQ(entry->at("request_id"), "r-1");
  const auto time = entry->at("time").get<std::string>();
  EXPECT_EQ(time.size(), std::string("2026-01-31T23:59:59.123Z").size()) << time;
  EXPECT_FALSE(parse_json(line_of(true, "x", ""), "line")->contains("request_id"));
}

TEST(Log, ScopesNest) {
  const LogRequestScope outer("outer");
  EXPECT_TRUE(line_of(false, "x", "inner").ends_with("[inner]\n"));
  std::ostringstream text;
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(text);
  sink->set_formatter(make_log_formatter(false));
  spdlog::logger("test", sink).error("x");
  EXPECT_TRUE(text.str().ends_with("[outer]\n"));
}

}  // namespace
}  // namespace tw
