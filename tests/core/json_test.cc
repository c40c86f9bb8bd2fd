#include "core/json.h"

#include <gtest/gtest.h>

namespace tw {
namespace {

TEST(Json, KeepsTheOrderOfKeys) {
  const auto value = parse_json(R"({"z":1,"a":2})", "test");
  ASSERT_TRUE(value);
  EXPECT_EQ(dump_json(*value), R"({"z":1,"a":2})");
}

TEST(Json, ErrorsNameTheSource) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "nul", "\"\xff\"", "{} x"}) {
    const auto value = parse_json(text, "config.json");
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(value.error().message.find("config.json"), std::string::npos);
  }
}

TEST(Json, DepthIsLimitedBeforeAnythingIsBuilt) {
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']'), "t"));
  EXPECT_FALSE(parse_json(std::string(65, '[') + std::string(65, ']'), "t"));
  EXPECT_FALSE(parse_json(std::string(10'000'000, '['), "t"));
  // Brackets inside strings do not count.
  EXPECT_TRUE(parse_json("\"" + std::string(1000, '[') + "\\\"[\"", "t"));
}

TEST(Json, DumpReplacesInvalidUtf8) {
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace tw
