// What the blocks of a model share while its forward pass is recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/cpu.h"
#include "kernels/rope/rope_table.h"
#include "nn/attention.h"
#include "nn/layers.h"
#include "nn/linear.h"
#include "nn/plan.h"

namespace tw {

// The sizes that memory is laid out for.
struct ForwardLimits {
  int64_t num_pages = 0;
  int32_t page_size = 0;  // tokens
  int64_t max_context = 0;
  int32_t max_num_tokens = 0;  // of a step
  int32_t max_num_seqs = 0;
  int32_t num_threads = 1;
};

class ForwardRecorder {
 public:
  ForwardRecorder(const ForwardLimits& limits, const CpuFeatures& features);

  const ForwardLimits& limits() const { return limits_; }
  const CpuFeatures& features() const { return features_; }
  PlanRecorder& plan() { return plan_; }
  PreparedInputs& prepared() { return prepared_; }
  const LayerKernels& kernels() const { return kernels_; }
  AttentionRecorder& attention() { return attention_; }

  // Room per token that blocks of all layers use in turn: the same value for the same role and
  // width. What it holds survives only until the next block that asks for it.
  ValueId shared_value(std::string_view role, int64_t columns);
  // The same for memory of a fixed size.
  ValueId shared_scratch(std::string_view role, size_t bytes);

  // The rotation's table for all positions that can occur, made once for equal parameters.
  Expected<std::shared_ptr<const kernels::RopeTable>> rope_table(
      kernels::RopeParameters parameters);

 private:
  struct SharedValue {
    std::string role;
    int64_t size;  // columns, or bytes of scratch
    ValueId value;
  };
  struct SharedTable {
    kernels::RopeParameters parameters;
    std::shared_ptr<const kernels::RopeTable> table;
  };

  ForwardLimits limits_;
  CpuFeatures features_;
  PlanRecorder plan_;
  PreparedInputs prepared_;
  LayerKernels kernels_;
  AttentionRecorder attention_;
  std::vector<SharedValue> values_;
  std::vector<SharedValue> scratches_;
  std::vector<SharedTable> tables_;
};

}  // namespace tw
