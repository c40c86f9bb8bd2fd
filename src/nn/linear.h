// A linear layer: y = x * W^T (+ bias), over weights packed for this machine's kernels.
//
// Several matrices that read the same input (query, key and value; gate and up) form one Linear:
// neighbours of the same format are packed as one matrix, others become parts of their own that
// write to their columns of the same output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "kernels/gemm/gemm.h"
#include "nn/loader.h"
#include "nn/lora_adapter.h"
#include "nn/plan.h"

namespace tw {

// The part of a linear layer that one rank of tensor parallelism holds.
struct LinearSlice {
  // Of each prefix, the rows that are kept, in order; empty: all.
  std::vector<std::vector<Range>> rows = {};
  std::optional<Range> columns = {};  // none: all
};

class Linear {
 public:
  Linear() = default;

  // Loads the weight of each prefix, in order, from the tensors that the checkpoint's quantization
  // scheme has for it ("<prefix>.weight", scales), and "<prefix>.bias" where `biases` is set.
  // `output_sizes` are the rows that each must have, `input_size` the columns of all. `row_orders`,
  // if not empty, say where each row lies among the rows of its prefix. `slice` counts rows in that
  // order; sizes are those of the whole.
  static Expected<Linear> load(const WeightLoader& loader, const std::vector<std::string>& prefixes,
                               int64_t input_size, const std::vector<int64_t>& output_sizes,
                               bool biases = false, const std::vector<RowOrder>& row_orders = {},
                               const LinearSlice& slice = {});

  int64_t input_size() const { return input_size_; }
  int64_t output_size() const { return output_size_; }
  size_t size_bytes() const;

  // Records output = input * W^T (store) or output += input * W^T (accumulate).
  void record(PlanRecorder& recorder, class PreparedInputs& prepared, ValueId input, ValueId output,
              kernels::Epilogue epilogue = kernels::Epilogue::store) const;

  // Rows as an embedding table: the matrix of the first part.
  const kernels::PackedWeight& table() const { return parts_.front().weight; }

 private:
  struct Part {
    kernels::PackedWeight weight;
    const kernels::GemmKernel* kernel = nullptr;          // of rows of generated tokens
    const kernels::GemmKernel* prefill_kernel = nullptr;  // of rows of prompts; often the same
    int64_t column = 0;                                   // where its outputs begin
    std::vector<float> bias;                              // empty or [n]
    // Empty, or [k]: the activation that each column of the weight meets.
    std::vector<int32_t> input_order;
  };
  int64_t input_size_ = 0;
  int64_t output_size_ = 0;
  std::vector<Part> parts_;
  LoraSite lora_;
};

// Rows [rows.begin, rows.end) alone.
kernels::PreparedActivations slice_rows(kernels::PreparedActivations a, Range rows);

// Prepared (quantized) forms of activations while a plan is recorded. Linears that read the same
// value in the same format share one preparation and one scratch area.
class PreparedInputs {
 public:
  explicit PreparedInputs(PlanRecorder& recorder) : recorder_(recorder) {}

  struct Prepared {
    ValueId scratch;
    kernels::ActivationFormat format;
  };
  // Records the preparation of `input` for `kernel` unless its current contents were prepared.
  // `order`: empty, or where each prepared column comes from; must outlive the plan. `part`: the
  // rows that are needed; they lie where they would lie among all.
  Prepared prepare(ValueId input, const kernels::GemmKernel& kernel,
                   std::span<const int32_t> order = {}, RowPart part = RowPart::all);
  // Scratch that steps share in turn: the same for the same size.
  ValueId scratch_of(size_t bytes);

 private:
  struct Entry {
    ValueId input;
    kernels::ActivationFormat format;
    ValueId scratch;
    int32_t version;
    std::span<const int32_t> order;
    RowPart part;
  };
  struct Area {
    kernels::ActivationFormat format;
    int64_t columns;
    ValueId scratch;
  };
  ValueId scratch_for(kernels::ActivationFormat format, int64_t columns);

  PlanRecorder& recorder_;
  std::vector<Entry> entries_;
  std::vector<Area> areas_;
  struct SharedScratch {
    size_t bytes;
    ValueId scratch;
  };
  std::vector<SharedScratch> shared_;
};

}  // namespace tw
