// Low-rank adapters of a model's linear layers: y += B (A x), for the tokens of sequences that ask
// for one (weights/lora_checkpoint.h). Several adapters are in memory at once, and a batch may mix
// them: a token's row depends on its own adapter alone.
//
// A model that is to take adapters is loaded with a LoraLayers, to which each Linear adds itself. A
// model without has no steps for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cpu.h"
#include "core/status.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/packed_weight.h"
#include "weights/checkpoint.h"
#include "weights/lora_checkpoint.h"

namespace tw {

// A and B of one layer as bf16. The rank is padded with zeros to a multiple of 32; B has the scale
// in it. Empty where the adapter leaves the layer alone.
struct LoraWeights {
  kernels::PackedWeight a;  // [rank, K]
  kernels::PackedWeight b;  // [N, rank]
};

// An adapter, packed for a model. Immutable; requests share it.
struct LoraAdapter {
  uint64_t id = 0;  // of this load: prefixes that were computed with it are its own
  // [rank of tensor parallelism][index of the layer, in the order in which that rank loaded them]
  std::vector<std::vector<LoraWeights>> ranks;

  size_t size_bytes() const;
};

// One matrix of a Linear that adapters can change. Sizes are those of the whole, without the
// division by tensor parallelism.
struct LoraLayer {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  int64_t input_size = 0;
  int64_t output_size = 0;
  RowOrder row_order = {};            // where the model's rows lie among the checkpoint's
  std::vector<Range> rows = {};       // of this rank, in the model's order; empty: all
  std::optional<Range> columns = {};  // of this rank

  int64_t own_output_size() const;
};

class LoraLayers {
 public:
  // Adapters of up to `max_rank` can be loaded. `shard_rank`: of tensor parallelism.
  LoraLayers(const CpuFeatures& features, int64_t max_rank, int32_t shard_rank);

  // Returns the layer's index.
  size_t add(LoraLayer layer);

  // Whether the adapter is one of this model: it names known layers, its shapes are theirs.
  Status check(const LoraCheckpoint& checkpoint) const;
  // Packs this rank's part; check() passed.
  Expected<std::vector<LoraWeights>> pack(const LoraCheckpoint& checkpoint) const;

  int32_t shard_rank() const { return shard_rank_; }
  int64_t padded_rank() const { return padded_rank_; }  // the largest
  const kernels::GemmKernel& kernel() const { return kernel_; }

 private:
  const kernels::GemmKernel& kernel_;
  const int64_t max_rank_;
  const int64_t padded_rank_;
  const int32_t shard_rank_;
  std::vector<LoraLayer> layers_;
};

// A Linear's matrices that adapters can change.
struct LoraSite {
  std::shared_ptr<const LoraLayers> layers;  // null: none are wanted
  struct Output {
    size_t index = 0;    // of the layer
    int64_t column = 0;  // where its outputs begin
  };
  std::vector<Output> outputs;
};

}  // namespace tw
