#include "router/prefix_index.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tw {
namespace {

constexpr size_t kBlock = PrefixIndex::kBlockBytes;

std::string random_text(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(size, ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 26);
  return text;
}

TEST(PrefixIndex, MatchesAsFarAsTextsAgree) {
  PrefixIndex index(1 << 20);
  const std::string text = random_text(10 * kBlock + 7, 1);
  EXPECT_EQ(index.match(text), 0u);
  index.insert(text);
  EXPECT_EQ(index.match(text), 10 * kBlock);
  EXPECT_EQ(index.match(text + "and more"), 10 * kBlock);
  EXPECT_EQ(index.match(text.substr(0, 3 * kBlock + 1)), 3 * kBlock);
  std::string other = text;
  other[4 * kBlock + 5] = '!';
  EXPECT_EQ(index.match(other), 4 * kBlock);
  EXPECT_EQ(index.match(text.substr(1)), 0u);
  EXPECT_EQ(index.match(""), 0u);
}

TEST(PrefixIndex, ABlockCountsOnlyBehindWhatItWasSeenBehind) {
  PrefixIndex index(1 << 20);
  const std::string a = random_text(kBlock, 1), b = random_text(kBlock, 2),
                    c = random_text(kBlock, 3);
  index.insert(a + b);
  index.insert(c);
  EXPECT_EQ(index.match(c + b), kBlock);
  EXPECT_EQ(index.match(b), 0u);
}

TEST(PrefixIndex, ForgetsWhatWasNotAskedForLongest) {
  PrefixIndex index(8 * kBlock);
  const std::string one = random_text(4 * kBlock, 1), two = random_text(4 * kBlock, 2),
                    three = random_text(4 * kBlock, 3);
  index.insert(one);
  index.insert(two);
  index.insert(one);
  index.insert(three);
  EXPECT_EQ(index.match(one), 4 * kBlock);
  EXPECT_EQ(index.match(two), 0u);
  EXPECT_EQ(index.match(three), 4 * kBlock);
  EXPECT_EQ(index.size_bytes(), 8 * kBlock);
}

TEST(PrefixIndex, KeepsTheBeginningOfATextThatIsTooLong) {
  PrefixIndex index(8 * kBlock);
  const std::string text = random_text(100 * kBlock, 1);
  index.insert(text);
  EXPECT_EQ(index.match(text), 8 * kBlock);
  PrefixIndex none(0);
  none.insert(text);
  EXPECT_EQ(none.match(text), 0u);
  EXPECT_EQ(none.size_bytes(), 0u);
}

}  // namespace
}  // namespace tw
