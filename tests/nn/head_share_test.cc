// Which KV heads serve which queries, for every division of heads over ranks.
#include "nn/head_share.h"

#include <gtest/gtest.h>

namespace tw {
namespace {

TEST(HeadShare, EveryQueryKeepsItsKvHead) {
  for (const int64_t num_kv_heads : {1, 2, 3, 8}) {
    for (const int64_t group : {1, 3, 4, 7}) {
      const int64_t num_heads = num_kv_heads * group;
      for (int64_t begin = 0; begin < num_heads; ++begin) {
        for (int64_t end = begin + 1; end <= num_heads; ++end) {
          const HeadShare share = HeadShare::of({begin, end}, num_heads, num_kv_heads);
          const auto num_own = static_cast<int64_t>(share.kv_heads.size());
          ASSERT_EQ((end - begin) % num_own, 0);
          const int64_t run = (end - begin) / num_own;
          for (int64_t head = begin; head < end; ++head) {
            ASSERT_EQ(share.kv_heads[static_cast<size_t>((head - begin) / run)], head / group);
          }
        }
      }
    }
  }
}

TEST(HeadShare, WholeGroupsKeepEachKvHeadOnce) {
  const HeadShare share = HeadShare::of({4, 12}, 32, 8);
  EXPECT_EQ(share.kv_heads, (std::vector<int64_t>{1, 2}));
}

TEST(HeadShare, SlicesOfOneTensorForAllThreeProjections) {
  AttentionConfig config;
  config.num_heads = 6;
  config.num_kv_heads = 3;
  config.head_dim = 10;
  config.qkv_names = {"qkv_proj"};
  const HeadShare share = HeadShare::of({2, 6}, 6, 3);
  const LinearSlice slice = share.qkv_slice(config);
  ASSERT_EQ(slice.rows.size(), 1u);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const Range& range : slice.rows[0]) ranges.emplace_back(range.begin, range.end);
  EXPECT_EQ(ranges, (std::vector<std::pair<int64_t, int64_t>>{
                        {20, 60}, {70, 80}, {80, 90}, {100, 110}, {110, 120}}));
  const Range output = *share.output_slice(config).columns;
  EXPECT_EQ(output.begin, 20);
  EXPECT_EQ(output.end, 60);
}

TEST(TensorShard, PartsCoverEverythingInBlocksByThreads) {
  for (const std::vector<int>& threads :
       {std::vector{1}, {1, 1}, {2, 2, 2}, {43, 43, 42}, {1, 5, 1, 1, 3}}) {
    for (const int64_t extent : {0, 1, 31, 32, 100, 1408, 129280}) {
      for (const int64_t block : {1, 16, 32, 256}) {
        int64_t next = 0;
        for (const TensorShard& shard : make_tensor_shards(threads)) {
          const Range part = shard.share(extent, block);
          ASSERT_EQ(part.begin, next);
          ASSERT_LE(part.begin, part.end);
          ASSERT_TRUE(part.end == extent || part.end % block == 0);
          if (shard.rank == 0 && extent > 0) {
            ASSERT_FALSE(part.empty());
          }
          next = part.end;
        }
        ASSERT_EQ(next, extent);
      }
    }
  }
  const auto shards = make_tensor_shards({3, 1});
  EXPECT_EQ(shards[0].share(1024, 16).size(), 768);
}

}  // namespace
}  // namespace tw
