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

class ForwardRecorder;

class Block {
 public:
  virtual ~Block() = default;

  // What the block keeps for each token of a sequence (keys and values).
  virtual int64_t cache_bytes_per_token() const { return 0; }

  // Allocates the block's cache for the recorder's limits and records
  //   output = f(input) (store) or output += f(input) (accumulate).
  // Both are [tokens, hidden_size]; they are distinct, or the epilogue is accumulate. Called once.
  virtual Status record(ForwardRecorder& recorder, ValueId input, ValueId output,
                        kernels::Epilogue epilogue) = 0;
};

}  // namespace tw
