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

TEST(Json, MembersOfAnObjectAreLimitedBeforeAnythingIsBuilt) {
  const auto object_of = [](int members) {
    std::string text = "{\"k\":0";
    for (int i = 1; i < members; ++i) text += ",\"k" + std::to_string(i) + "\":0";
    return text + "}";
  };
  EXPECT_TRUE(parse_json(object_of(8'000), "t", kRequestJsonLimits));
  EXPECT_TRUE(parse_json(object_of(20'000), "t"));
  for (const std::string& text : {object_of(9'000), object_of(1'000'000),
                                  "[" + object_of(7'000) + "," + object_of(7'000) + "]"}) {
    const auto value = parse_json(text, "body", kRequestJsonLimits);
    ASSERT_FALSE(value);
    EXPECT_NE(value.error().message.find("too many members"), std::string::npos);
  }
  // Colons inside strings do not count.
  EXPECT_TRUE(parse_json("[\"" + std::string(100'000, ':') + "\"]", "t", kRequestJsonLimits));
}

TEST(Json, DumpReplacesInvalidUtf8) {
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace tw
