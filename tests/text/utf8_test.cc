#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace tw {
namespace {

TEST(Utf8, AcceptsWellFormedText) {
  for (const std::string_view text :
       {"", "plain", "\x7f", "\u0080\u07ff", "\u0800\ud7ff\ue000\uffff", "\U00010000\U0010ffff"}) {
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt) << text;
  }
  EXPECT_EQ(find_invalid_utf8(std::string_view("a\0b", 3)), std::nullopt);
}

TEST(Utf8, FindsTheFirstBadByte) {
  const std::pair<std::string_view, size_t> cases[] = {
      {"\x80", 0},               // a continuation alone
      {"ab\xff", 2},             // never a byte of UTF-8
      {"\xc1\x81", 0},           // overlong
      {"\xe0\x9f\xbf", 0},       // overlong
      {"x\xf0\x8f\xbf\xbf", 1},  // overlong
      {"\xed\xa0\x80", 0},       // a surrogate
      {"\xf4\x90\x80\x80", 0},   // above U+10FFFF
      {"\xf5\x80\x80\x80", 0},   // above U+10FFFF
      {"\u00e9\xc3", 2},         // cut
      {"\xe4\xb8", 0},           // cut
      {"\xf0\x9f\x98", 0},       // cut
      {"\xc3\x41", 0},           // no continuation
      {"\xe4\xb8\x41", 0},       // no continuation
  };
  for (const auto& [text, index] : cases) EXPECT_EQ(find_invalid_utf8(text), index) << text;
}

}  // namespace
}  // namespace tw
