// Grouped-query attention with rotary positions over the paged KV cache, recorded into a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cpu.h"
#include "kernels/attention/attention.h"
#include "kernels/rope/rope_table.h"
#include "nn/kv_cache.h"
#include "nn/plan.h"

namespace tw {

// Records the attention of a model's layers. Layers with the same window share the division of
// work over threads, which member 0 computes once per batch.
class AttentionRecorder {
 public:
  // `rope` and `cache` must outlive the plan.
  AttentionRecorder(PlanRecorder& recorder, const CpuFeatures& features, int32_t num_heads,
                    const kernels::RopeTable& rope, const KvCache& cache,
                    const kernels::AttentionLimits& limits);

  // qkv: [tokens, (num_heads + 2 * num_kv_heads) * head_dim], queries, keys, values side by side;
  // output: [tokens, num_heads * head_dim]. Rotates, writes the layer's keys and values to the
  // cache, and attends. sliding_window: positions a token sees, itself included; 0 means all.
  void record(int64_t layer, ValueId qkv, ValueId output, int32_t sliding_window);

 private:
  struct WorkList;  // an attention plan, refilled for each batch
  std::shared_ptr<WorkList> work_list(int32_t sliding_window);

  PlanRecorder& recorder_;
  const kernels::RopeKernels& rope_kernels_;
  const kernels::AttentionKernels& attention_kernels_;
  const kernels::RopeTable& rope_;
  const KvCache& cache_;
  kernels::AttentionShape shape_;
  kernels::AttentionLimits limits_;
  ValueId pages_;  // the cache's memory
  ValueId partials_;
  std::vector<std::shared_ptr<WorkList>> work_lists_;
};

}  // namespace tw
