// What the recorders of both kinds of attention share: a division of work, refilled for each batch.
#pragma once

#include <memory>

#include "nn/attention.h"

namespace tw {

struct AttentionRecorder::WorkList {
  kernels::AttentionWork work;
  std::unique_ptr<std::byte[]> memory;
  kernels::AttentionPlan plan;
  ValueId value;     // orders its readers after its writer
  ValueId partials;  // of contexts that are split over threads
};

inline kernels::AttentionBatch attention_batch(const Batch& batch) {
  return {batch.positions, batch.seq_starts, batch.page_tables, batch.page_table_starts};
}

// What attention over a batch touches: tokens in the cache, and pairs of a query and a key.
struct AttentionCounts {
  int64_t cached = 0;
  int64_t scores = 0;
};
inline AttentionCounts count_attention(const Batch& batch) {
  AttentionCounts counts;
  for (size_t seq = 0; seq < static_cast<size_t>(batch.num_seqs()); ++seq) {
    const int64_t tokens = batch.seq_starts[seq + 1] - batch.seq_starts[seq];
    const int64_t context = batch.context_lens[seq];
    counts.cached += context;
    counts.scores += tokens * context - tokens * (tokens - 1) / 2;
  }
  return counts;
}

}  // namespace tw
