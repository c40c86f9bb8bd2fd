#include "engine/radix_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tw {
namespace {

constexpr int32_t kPageSize = 4;

std::vector<TokenId> tokens(std::initializer_list<int> pages) {
  std::vector<TokenId> result;
  for (int page : pages) result.insert(result.end(), kPageSize, page);
  return result;
}

struct RadixCacheTest : ::testing::Test {
  PagePool pool{32};
  RadixCache cache{pool, kPageSize};

  std::vector<PageId> take(int count) {
    std::vector<PageId> pages;
    for (int i = 0; i < count; ++i) pages.push_back(*pool.allocate());
    return pages;
  }
  void give_back(const std::vector<PageId>& pages) {
    for (PageId page : pages) pool.release(page);
  }
  // Computes the tokens as a request does: takes pages, inserts, lets go.
  std::vector<PageId> add(const std::vector<TokenId>& sequence) {
    const auto pages = take(static_cast<int>(sequence.size()) / kPageSize);
    cache.insert(sequence, pages);
    give_back(pages);
    return pages;
  }
};

TEST_F(RadixCacheTest, FindsTheLongestPrefixOfWholePages) {
  const auto pages = add(tokens({1, 2, 3}));
  EXPECT_EQ(cache.match_length(tokens({1, 2, 3, 4})), 12);
  EXPECT_EQ(cache.match_length(tokens({1, 2, 9})), 8);
  EXPECT_EQ(cache.match_length(tokens({9, 2, 3})), 0);
  auto partial = tokens({1, 2, 3});
  partial.pop_back();
  EXPECT_EQ(cache.match_length(partial), 8);
  const auto found = cache.match(tokens({1, 2, 7}));
  EXPECT_EQ(found, std::vector<PageId>(pages.begin(), pages.begin() + 2));
  EXPECT_EQ(pool.reference_count(found[0]), 2);
  give_back(found);
}

TEST_F(RadixCacheTest, SpacesShareNothing) {
  const auto pages = add(tokens({1, 2}));
  EXPECT_EQ(cache.match_length(tokens({1, 2}), 7), 0);
  EXPECT_TRUE(cache.match(tokens({1, 2}), 7).empty());
  const auto others = take(2);
  cache.insert(tokens({1, 2}), others, 7);
  give_back(others);
  EXPECT_EQ(cache.num_pages(), 4) << "the same tokens, computed twice";
  const auto found = cache.match(tokens({1, 2, 3}), 7);
  EXPECT_EQ(found, others);
  give_back(found);
  EXPECT_EQ(cache.match_length(tokens({1, 2})), 8);
  // Their age is one: the space that was used last stays.
  EXPECT_EQ(cache.evict(2), 2);
  EXPECT_EQ(cache.match_length(tokens({1, 2})), 0);
  EXPECT_EQ(cache.match_length(tokens({1, 2}), 7), 8);
  EXPECT_EQ(cache.evict(5), 2);
  EXPECT_EQ(pool.num_free(), pool.num_pages());
}

TEST_F(RadixCacheTest, BranchesShareTheirPrefix) {
  add(tokens({1, 2, 3}));
  const int32_t used = pool.num_pages() - pool.num_free();
  const auto prefix = cache.match(tokens({1, 2}));
  auto pages = prefix;
  pages.push_back(*pool.allocate());
  cache.insert(tokens({1, 2, 4}), pages);
  give_back(pages);
  EXPECT_EQ(pool.num_pages() - pool.num_free(), used + 1);
  EXPECT_EQ(cache.match_length(tokens({1, 2, 3})), 12);
  EXPECT_EQ(cache.match_length(tokens({1, 2, 4})), 12);
}

TEST_F(RadixCacheTest, DuplicatesStayWithTheirOwner) {
  const auto first = add(tokens({1, 2}));
  const auto second = take(2);
  cache.insert(tokens({1, 2}), second);
  EXPECT_EQ(cache.num_pages(), 2);
  give_back(second);
  EXPECT_EQ(pool.reference_count(second[0]), 0);
  EXPECT_EQ(pool.reference_count(first[0]), 1);
}

TEST_F(RadixCacheTest, EvictsTheLeastRecentlyUsedThatNobodyHolds) {
  add(tokens({1, 2}));
  add(tokens({3, 4}));
  give_back(cache.match(tokens({1, 2})));  // now {3, 4} is the older
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(cache.match_length(tokens({3, 4})), 4);
  EXPECT_EQ(cache.match_length(tokens({1, 2})), 8);
  const auto held = cache.match(tokens({1, 2}));
  EXPECT_EQ(cache.evict(100), 1);  // the rest of {3, 4}
  EXPECT_EQ(cache.match_length(tokens({1, 2})), 8);
  EXPECT_EQ(cache.num_evictable(), 0);
  give_back(held);
  EXPECT_EQ(cache.evict(100), 2);
  EXPECT_EQ(pool.num_free(), pool.num_pages());
}

TEST_F(RadixCacheTest, ClearForgetsButDoesNotFreeWhatIsHeld) {
  add(tokens({1, 2}));
  const auto held = cache.match(tokens({1}));
  cache.clear();
  EXPECT_EQ(cache.match_length(tokens({1, 2})), 0);
  EXPECT_EQ(pool.num_free(), pool.num_pages() - 1);
  give_back(held);
  EXPECT_EQ(pool.num_free(), pool.num_pages());
}

// Beside a map from page-aligned prefixes to pages, the plain way to say the same.
TEST(RadixCacheProperty, EqualsAMapOfPrefixes) {
  std::mt19937 random(1234);
  for (int round = 0; round < 30; ++round) {
    PagePool pool(200);
    RadixCache cache(pool, kPageSize);
    std::map<std::vector<TokenId>, PageId> naive;
    for (int event = 0; event < 300; ++event) {
      std::vector<TokenId> sequence;
      const int pages = static_cast<int>(random() % 6);
      for (int p = 0; p < pages; ++p) {
        const auto value = static_cast<TokenId>(random() % 3);
        for (int i = 0; i < kPageSize; ++i) sequence.push_back(value + i);
      }
      for (unsigned extra = random() % kPageSize; extra > 0; --extra) sequence.push_back(99);

      std::vector<PageId> found = cache.match(sequence);
      std::vector<PageId> expected;
      for (size_t end = kPageSize; end <= sequence.size(); end += kPageSize) {
        const auto entry =
            naive.find({sequence.begin(), sequence.begin() + static_cast<int64_t>(end)});
        if (entry == naive.end()) break;
        expected.push_back(entry->second);
      }
      ASSERT_EQ(found, expected) << "round " << round << " event " << event;
      const size_t whole = sequence.size() / kPageSize;
      if (pool.num_free() < 10) {
        const int32_t before = pool.num_free();
        const int32_t freed = cache.evict(40);
        ASSERT_EQ(pool.num_free(), before + freed);
        // What was evicted must be a set of suffixes: rebuild the map from what is left.
        for (auto entry = naive.begin(); entry != naive.end();) {
          const bool kept =
              cache.match_length(entry->first) == static_cast<int64_t>(entry->first.size());
          entry = kept ? std::next(entry) : naive.erase(entry);
        }
        ASSERT_EQ(static_cast<int32_t>(naive.size()), cache.num_pages());
      } else {
        while (found.size() < whole) found.push_back(*pool.allocate());
        cache.insert(sequence, found);
        for (size_t p = 0; p < whole; ++p) {
          naive.emplace(
              std::vector<TokenId>(sequence.begin(),
                                   sequence.begin() + static_cast<int64_t>((p + 1) * kPageSize)),
              found[p]);
        }
      }
      for (PageId page : found) pool.release(page);
      ASSERT_EQ(pool.num_pages() - pool.num_free(), cache.num_pages());
      ASSERT_EQ(cache.num_evictable(), cache.num_pages());
    }
  }
}

}  // namespace
}  // namespace tw
