// Incremental decoding and stop strings together, as the server and the terminal use them.
#include "text/generation_text.h"

#include <gtest/gtest.h>

#include "text/golden_data.h"

namespace tw {
namespace {

using test::cached_tokenizer;

struct Shown {
  std::string text;
  size_t num_pushed = 0;
};

Shown show(GenerationText& generation, const std::vector<int32_t>& ids) {
  Shown shown;
  for (const int32_t id : ids) {
    if (generation.stopped()) break;
    shown.text += generation.push(id);
    ++shown.num_pushed;
  }
  shown.text += generation.finish();
  return shown;
}

TEST(GenerationText, ShowsTheWholeTextWithoutStops) {
  for (const char* name : test::kTokenizers) {
    const Tokenizer* tokenizer = cached_tokenizer(name);
    TW_REQUIRE_ASSET(tokenizer);
    for (const auto& [text_name, text] : test::read_golden("texts.json")["texts"].items()) {
      const auto ids = *tokenizer->encode(text.get<std::string>(), false);
      GenerationText generation(*tokenizer, {});
      EXPECT_EQ(show(generation, ids).text, *tokenizer->decode(ids, true)) << name << text_name;
      EXPECT_FALSE(generation.stopped());
    }
  }
}

TEST(GenerationText, StopsWithinTheTokensThatSpellTheStopString) {
  const Tokenizer* tokenizer = cached_tokenizer("qwen3");
  TW_REQUIRE_ASSET(tokenizer);
  const auto ids = *tokenizer->encode("One two three four. Observation: five six", false);
  for (const bool keep : {false, true}) {
    GenerationText generation(*tokenizer, {.stops = {"ation:", "never"}, .keep_stop_string = keep});
    const Shown shown = show(generation, ids);
    EXPECT_EQ(shown.text, keep ? "One two three four. Observation:" : "One two three four. Observ");
    EXPECT_TRUE(generation.stopped());
    EXPECT_EQ(generation.matched_stop(), "ation:");
    EXPECT_LT(shown.num_pushed, ids.size());
    EXPECT_EQ(generation.push(ids[0]), "");
    EXPECT_EQ(generation.finish(), "");
  }
}

TEST(GenerationText, SharesCompiledStopStrings) {
  const Tokenizer* tokenizer = cached_tokenizer("llama3_1");
  TW_REQUIRE_ASSET(tokenizer);
  const StopStrings stops({"b\nc"});
  GenerationText first(*tokenizer, stops, true);
  GenerationText second(*tokenizer, stops, true);
  const auto ids = *tokenizer->encode("a b\nc d", false);
  EXPECT_EQ(show(first, ids).text, "a ");
  EXPECT_EQ(show(second, ids).text, "a ");
}

TEST(GenerationText, FindsAStopStringInTheLastCharacters) {
  const Tokenizer* tokenizer = cached_tokenizer("llama3_1");
  TW_REQUIRE_ASSET(tokenizer);
  // "stop" may still become "stop!!": only the end decides.
  GenerationText generation(*tokenizer, {.stops = {"stop", "stop!!"}});
  EXPECT_EQ(show(generation, *tokenizer->encode("never stop!", false)).text, "never ");
  EXPECT_TRUE(generation.stopped());
  EXPECT_EQ(generation.matched_stop(), "stop");
}

TEST(GenerationText, ShowsSpecialTokensWhenAsked) {
  const Tokenizer* tokenizer = cached_tokenizer("qwen3");
  TW_REQUIRE_ASSET(tokenizer);
  const auto ids = *tokenizer->encode("a<|im_end|>", false);
  GenerationText hidden(*tokenizer, {});
  EXPECT_EQ(show(hidden, ids).text, "a");
  GenerationText shown(*tokenizer, {.skip_special_tokens = false});
  EXPECT_EQ(show(shown, ids).text, "a<|im_end|>");
}

}  // namespace
}  // namespace tw
