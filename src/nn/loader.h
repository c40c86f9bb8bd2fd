// What a model needs while it loads its weights: the checkpoint, the machine, and progress.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cpu.h"
#include "core/status.h"
#include "core/thread_team.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/gemm/gemm.h"
#include "parallel/communicator.h"
#include "parallel/expert_placement.h"
#include "parallel/tensor_shard.h"
#include "weights/checkpoint.h"
#include "weights/quantize/quantizer.h"
#include "weights/schemes/scheme.h"

namespace tw {

class LoraLayers;

// Expert parallelism: neighbouring ranks form groups of equal size, and each group holds some of
// the experts; its ranks divide them as those of tensor parallelism would.
struct ExpertSharding {
  int num_groups = 1;         // divides the number of ranks
  int32_t num_redundant = 0;  // copies of busy experts, per layer
  // What decides which experts lie together; null or without the layer: all are chosen as often.
  const ExpertChoices* expected = nullptr;
};

// How weights are loaded, whatever the checkpoint and the team.
struct LoadSettings {
  CpuFeatures features;  // chooses the kernels
  kernels::ActivationPrecision precision = kernels::ActivationPrecision::bf16;
  std::function<void(int64_t bytes)> on_progress =
      {};                          // stored bytes that were packed; may be empty
  const Scheme* scheme = nullptr;  // how linear layers are stored; load_model sets it
  // Everything is opened and checked, and nothing is packed: the model cannot be used.
  bool checks_only = false;
  // Rows of prompts may have faster kernels of their own, which round differently. Without them a
  // row's bits do not depend on whether its token was generated or given either.
  bool separate_prefill_kernels = true;
  // For tests: another precision before rows of prompts.
  std::optional<kernels::ActivationPrecision> prefill_precision = {};
  kernels::KvType kv_type = kernels::KvType::bf16;       // of the KV cache
  std::optional<QuantizationOptions> quantization = {};  // of an unquantized checkpoint, at load
  bool next_token_layer = false;           // load the layer that guesses a token further
  const Checkpoint* eagle_head = nullptr;  // or this head, which does so too
  // Tensor parallelism: which part of each layer this rank holds, and how it meets the others,
  // which hold the rest; null where there are none.
  TensorShard shard = {};
  const Communicator* communicator = nullptr;
  // Adapters (nn/lora_adapter.h) of up to this rank can be loaded beside the model; 0: none can.
  int64_t max_lora_rank = 0;
  std::shared_ptr<LoraLayers> lora = {};  // what they can change; load_model sets it
  ExpertSharding experts = {};
};

struct WeightLoader : LoadSettings {
  const Checkpoint& checkpoint;
  ThreadTeam& team;  // packs in parallel

  WeightLoader(const Checkpoint& from, ThreadTeam& packers, LoadSettings settings)
      : LoadSettings(std::move(settings)), checkpoint(from), team(packers) {}

  // The kernel for rows of prompts.
  const kernels::GemmKernel& select_prefill_gemm(kernels::WeightFormat format) const;

  // The group that this rank belongs to, and its part of the group's experts. Parts are the same in
  // all groups, whatever the ranks' threads, so that experts can move.
  int expert_group() const { return shard.rank * experts.num_groups / shard.size; }
  TensorShard expert_shard() const;

  // This rank's part of a linear layer's columns, on borders that its format has and in multiples
  // of the first of `units` that gives every rank a part, or of the last. Fails where columns can't
  // be divided (act-order).
  Expected<Range> share_of_columns(const std::string& module, int64_t rows, int64_t columns,
                                   std::initializer_list<int64_t> units = {16, 1}) const;
  Expected<Range> share_of_columns(const StoredMatrix& matrix,
                                   std::initializer_list<int64_t> units = {16, 1}) const;

  // A one-dimensional tensor as float, of exactly `size` elements; an error names it otherwise.
  // Element i is element row_order.stored_row(i) of the tensor.
  Expected<std::vector<float>> load_vector(std::string_view name, int64_t size,
                                           const RowOrder& row_order = {}) const;

  // The number that the first present tensor of `names` holds, or 1 where none is: a scale, finite
  // and above zero. An error names the tensor otherwise.
  Expected<float> load_scale(const std::vector<std::string>& names) const;
};

}  // namespace tw
