// A linear layer per attention head: y[token, head] = W[head] x[token, head], the product that
// absorbs MLA's up-projections into queries and outputs.
//
// The matrices of all heads are one packed weight, panels of head after head, so that any weight
// format and GEMM kernel serves: a head's product is a GEMM over its panels, with the rows of its
// inputs and outputs a token apart. Threads divide the panels of all heads.
#pragma once

#include <cstdint>

#include "core/cpu.h"
#include "kernels/gemm/gemm.h"
#include "nn/forward_recorder.h"
#include "nn/loader.h"
#include "nn/plan.h"

namespace tw {

class BatchedLinear {
 public:
  BatchedLinear() = default;
  // `weight`: [num_heads * output_size, input_size]; output_size is a multiple of 16.
  BatchedLinear(kernels::PackedWeight weight, int32_t num_heads, const WeightLoader& loader);

  int32_t num_heads() const { return num_heads_; }
  int64_t input_size() const { return weight_.k(); }
  int64_t output_size() const { return weight_.n() / num_heads_; }
  kernels::WeightFormat format() const { return weight_.format(); }
  const kernels::PackedWeight& weight() const { return weight_; }

  // Records output = W * input. A head's columns begin at head * (columns of the value / num_heads)
  // of input and output; there may be more of them than it reads and writes.
  void record(ForwardRecorder& recorder, ValueId input, ValueId output) const;

 private:
  kernels::PackedWeight weight_;
  int32_t num_heads_ = 0;
  const kernels::GemmKernel* kernel_ = nullptr;
};

}  // namespace tw
