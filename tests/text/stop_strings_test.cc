// Stop strings against a naive search over the whole text, cut into pieces everywhere.
#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace tw {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  std::string matched;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '"' << outcome.text << "\" stopped=" << outcome.stopped << " by \""
             << outcome.matched << '"';
}

// The reference: the stop string that begins first, of those the longest.
Outcome search(const std::string& text, const std::vector<std::string>& stops, bool keep) {
  size_t best = std::string::npos;
  std::string matched;
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    const size_t found = text.find(stop);
    if (found == std::string::npos) continue;
    if (found < best || (found == best && stop.size() > matched.size())) {
      best = found;
      matched = stop;
    }
  }
  if (best == std::string::npos) return {text, false, ""};
  return {text.substr(0, best + (keep ? matched.size() : 0)), true, matched};
}

Outcome stream(const std::vector<std::string>& pieces, StopStrings stops) {
  Outcome outcome;
  const auto take = [&](const StopStrings::Result& result) {
    EXPECT_FALSE(outcome.stopped && (!result.text.empty() || result.stopped));
    outcome.text += result.text;
    if (result.stopped) {
      outcome.stopped = true;
      outcome.matched = result.matched;
    }
  };
  for (const std::string& piece : pieces) take(stops.push(piece));
  take(stops.finish());
  return outcome;
}

std::vector<std::string> cut(const std::string& text, uint32_t cuts) {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    pieces.back() += text[i];
    if ((cuts >> i) & 1) pieces.emplace_back();
  }
  return pieces;
}

TEST(StopStrings, PassTextWhenThereAreNone) {
  StopStrings none;
  EXPECT_EQ(none.push("a").text, "a");
  EXPECT_EQ(none.finish().text, "");
  StopStrings empty({"", ""});
  EXPECT_EQ(empty.push("abc").text, "abc");
}

TEST(StopStrings, HoldBackOnlyWhatMayBecomeOne) {
  StopStrings stops({"<end>"});
  EXPECT_EQ(stops.push("Hello <").text, "Hello ");
  EXPECT_EQ(stops.push("en").text, "");
  EXPECT_EQ(stops.push("t><e").text, "<ent>");
  const auto last = stops.push("nd> more");
  EXPECT_EQ(last.text, "");
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.matched, "<end>");
  EXPECT_EQ(stops.push("x").text, "");
  EXPECT_EQ(stops.finish().text, "");
}

TEST(StopStrings, StopAtOnceWhenNothingLongerCanCome) {
  StopStrings stops({"\n\n", "###"});
  EXPECT_FALSE(stops.push("a\n").stopped);
  EXPECT_TRUE(stops.push("\n").stopped);
}

TEST(StopStrings, WaitForALongerOne) {
  StopStrings stops({"a", "ab"});
  EXPECT_FALSE(stops.push("xa").stopped);
  const auto result = stops.push("c");
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.matched, "a");
  StopStrings at_the_end({"a", "ab"}, true);
  EXPECT_EQ(at_the_end.push("xa").text, "x");
  const auto last = at_the_end.finish();
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.text, "a");
}

TEST(StopStrings, EqualANaiveSearchInAllCutsOfAText) {
  const std::string text = "abcabcabdab";
  const std::vector<std::vector<std::string>> sets = {{"abcabd"},
                                                      {"cab", "bcabd"},
                                                      {"abcd", "bd", "d"},
                                                      {"dab", "ab d"},
                                                      {"b", "abcabca", "cabx"},
                                                      {"zz"},
                                                      {"bdab", "bda", "abd"},
                                                      {"dabx"}};
  for (const auto& stops : sets) {
    for (const bool keep : {false, true}) {
      const Outcome expected = search(text, stops, keep);
      const StopStrings compiled(stops, keep);
      for (uint32_t cuts = 0; cuts < (1u << (text.size() - 1)); ++cuts) {
        ASSERT_EQ(stream(cut(text, cuts), compiled), expected) << cuts;
      }
    }
  }
}

TEST(StopStrings, EqualANaiveSearchOnRandomText) {
  std::mt19937 random(1);
  const auto word = [&](size_t length, uint32_t letters) {
    std::string text(length, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % letters);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    const uint32_t letters = 1 + random() % 4;
    std::vector<std::string> stops(random() % 6);
    for (std::string& stop : stops) stop = word(random() % 7, letters);
    const std::string text = word(random() % 32, letters);
    const bool keep = random() % 2;
    ASSERT_EQ(stream(cut(text, random()), StopStrings(stops, keep)), search(text, stops, keep))
        << "round " << round << ", text " << text;
  }
}

TEST(StopStrings, NeverCutACharacter) {
  StopStrings stops({"é!", "日本"});
  EXPECT_EQ(stops.push("caf").text, "caf");
  EXPECT_EQ(stops.push("é").text, "");
  EXPECT_EQ(stops.push("日").text, "é");
  EXPECT_EQ(stops.finish().text, "日");
}

// Ten thousand stop strings cost each token no more than a few.
TEST(StopStrings, ManyCostLittle) {
  std::mt19937 random(2);
  std::vector<std::string> stops;
  for (int i = 0; i < 10000; ++i) stops.push_back(fmt::format("stop string number {} ", random()));
  const StopStrings compiled(stops);
  StopStrings generation = compiled;
  const std::string piece = "stop string numb";
  const auto begin = std::chrono::steady_clock::now();
  size_t shown = 0;
  constexpr int kPieces = 100000;
  for (int i = 0; i < kPieces; ++i) shown += generation.push(piece).text.size();
  shown += generation.finish().text.size();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(shown, kPieces * piece.size());
  // 100,000 pieces against 10,000 strings one by one would take minutes.
  EXPECT_LT(seconds.count(), 10.0);
  StopStrings another = compiled;
  EXPECT_TRUE(another.push("x" + stops[7777] + "y").stopped);
}

// A run that keeps falling back: linear, not quadratic.
TEST(StopStrings, LongRunsStayLinear) {
  const std::string almost = std::string(20000, 'a') + "b";
  StopStrings stops({almost});
  size_t shown = 0;
  for (int i = 0; i < 20; ++i) shown += stops.push(std::string(50000, 'a')).text.size();
  shown += stops.finish().text.size();
  EXPECT_EQ(shown, 1000000u);
}

TEST(StopStrings, AreValidated) {
  EXPECT_TRUE(validate_stop_strings(std::vector<std::string>(10000, "stop")));
  EXPECT_TRUE(validate_stop_strings({}));
  const auto code = [](const std::vector<std::string>& stops) {
    const Status status = validate_stop_strings(stops);
    return status ? std::string("valid") : status.error().message;
  };
  EXPECT_NE(code({"a", ""}).find("stop[1]"), std::string::npos);
  EXPECT_NE(code({"\xff"}).find("UTF-8"), std::string::npos);
  EXPECT_NE(code({std::string(kMaxStopBytes, 'a'), "b"}).find("longer than"), std::string::npos);
}

}  // namespace
}  // namespace tw
