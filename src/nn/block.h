// A block of a decoder layer: attention, a feed-forward network, a mixture of experts. It maps
// rows of the hidden size to rows of the hidden size; the norms around it and the residual stream
// belong to the decoder (models/decoder.h).
#pragma once

#include <cstdint>
#include <memory>

#include "core/status.h"
#include "kernels/gemm/gemm.h"
#include "nn/plan.h"

namespace tw {

class ExpertLayer;
class ForwardRecorder;

// What a block computes on a rank of tensor parallelism.
enum class BlockShare : uint8_t {
  whole,  // everything: the block knows no ranks
  part,   // a summand; the ranks' outputs add up to the block's
  none,   // nothing: there are more ranks than parts
};

class Block {
 public:
  virtual ~Block() = default;

  // Of what was loaded, for a loader with several ranks.
  virtual BlockShare share() const { return BlockShare::whole; }

  // Where the block is a mixture of experts.
  virtual ExpertLayer* expert_layer() { return nullptr; }

  // What the block keeps for each token of a sequence (keys and values).
  virtual int64_t cache_bytes_per_token() const { return 0; }

  // Makes page `to` of what it keeps for tokens a copy of page `from`. After record().
  virtual void copy_page(int64_t from, int64_t to) {}

  // What the block keeps for a sequence as a whole, whatever its length (recurrent states).
  virtual int64_t state_bytes_per_sequence() const { return 0; }

  // Allocates the block's cache for the recorder's limits and records
  //   output = f(input) (store) or output += f(input) (accumulate).
  // Both are [tokens, hidden_size]; they are distinct, or the epilogue is accumulate. Called once,
  // and not for a share of none.
  virtual Status record(ForwardRecorder& recorder, ValueId input, ValueId output,
                        kernels::Epilogue epilogue) = 0;
};

}  // namespace tw
