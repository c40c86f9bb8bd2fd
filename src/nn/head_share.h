// Which heads of an attention block a rank of tensor parallelism computes.
//
// Queries are divided by whole groups, each with its KV head, where there are as many KV heads as
// ranks; otherwise by heads, and a KV head is held by every rank that has queries of its group. A
// rank's queries may begin or end within a group: then it keeps KV heads once for each run of
// queries, so that all its KV heads serve equally many, as the attention kernels have it.
#pragma once

#include <string>
#include <vector>

#include "core/thread_team.h"
#include "nn/attention_block.h"
#include "nn/linear.h"

namespace tw {

struct HeadShare {
  bool is_whole = true;           // all heads; the rest is empty then
  Range heads;                    // of the queries
  std::vector<int64_t> kv_heads;  // in order of the queries that they serve

  // Heads are divided where o_proj's format allows its columns to be.
  static Expected<HeadShare> of(const WeightLoader& loader, const std::string& prefix,
                                const AttentionConfig& config);
  // Heads [heads.begin, heads.end) of num_heads, a multiple of num_kv_heads.
  static HeadShare of(Range heads, int64_t num_heads, int64_t num_kv_heads);

  // Empty where the share is all.
  LinearSlice qkv_slice(const AttentionConfig& config) const;
  LinearSlice output_slice(const AttentionConfig& config) const;
  // Of values per query head.
  void keep_own(std::vector<float>& values) const;
};

}  // namespace tw
