// Grouped-query attention over the paged KV cache, recorded into a plan: what lies between the
// projection to queries, keys and values and the projection of the output.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/cpu.h"
#include "kernels/attention/attention.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope_table.h"
#include "nn/kv_cache.h"
#include "nn/plan.h"

namespace tw {

// An RMSNorm of queries and keys before their rotation.
struct QkNorm {
  // Of heads: both [head_dim]. Of the whole projection: [num_heads * head_dim] and
  // [num_kv_heads * head_dim]. Empty: none.
  std::vector<float> q_weight, k_weight;
  float epsilon = 0;

  explicit operator bool() const { return !q_weight.empty(); }
};

// Llama 4's layers without positions: queries grow with the position,
//   q *= 1 + scale * log(1 + floor((position + 1) / floor))
// so that attention stays as peaked in long contexts (Nakanishi, "Scalable-Softmax Is Superior for
// Attention", 2025).
struct QueryTemperature {
  float scale = 0.1f;
  float floor = 8192.0f;
};

// One layer's attention. The arrays and the cache must outlive the plan.
struct AttentionLayer {
  kernels::AttentionShape shape;  // its layout is the cache's
  const KvCache& cache;
  std::shared_ptr<const kernels::RopeTable> rope;  // null: no rotation
  const QkNorm& qk_norm;
  const float* sinks = nullptr;                // [num_heads] or null, see AttentionArguments
  float key_scale = 1.0f, value_scale = 1.0f;  // of the cache
  std::optional<QueryTemperature> temperature = {};
};

struct LatentAttentionLayer;  // latent_attention.h
struct LatentAttentionValues;

// Records the attention of a model's layers. Layers whose work is the same share its division over
// threads, which member 0 computes once per batch.
class AttentionRecorder {
 public:
  AttentionRecorder(PlanRecorder& recorder, const CpuFeatures& features,
                    const kernels::AttentionLimits& limits);

  // qkv: [tokens, (num_heads + 2 * num_kv_heads) * head_dim], queries, keys, values side by side;
  // output: [tokens, num_heads * head_dim]. Normalizes and rotates in place, writes the layer's
  // keys and values to the cache, and attends.
  void record(const AttentionLayer& layer, ValueId qkv, ValueId output);

  // Attention in the latent space: normalizes latents, rotates, writes the cache's rows, attends.
  void record_latent(const LatentAttentionLayer& layer, const LatentAttentionValues& values);

  struct WorkList;  // an attention plan, refilled for each batch: attention_work_list.h

 private:
  std::shared_ptr<WorkList> work_list(const kernels::AttentionWork& work);

  PlanRecorder& recorder_;
  const CpuFeatures features_;
  const kernels::NormKernels& norm_kernels_;
  const kernels::RopeKernels& rope_kernels_;
  kernels::AttentionLimits limits_;
  ValueId pages_;  // the caches' memory
  std::vector<std::shared_ptr<WorkList>> work_lists_;
};

}  // namespace tw
