// Loading the many tensors of a layer without a check behind each: the first problem is kept, and
// what follows it does nothing.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "nn/linear.h"
#include "nn/loader.h"

namespace tw {

class LoadSequence {
 public:
  // `prefix` stands before every name, e.g. "model.layers.3.".
  LoadSequence(const WeightLoader& loader, std::string prefix)
      : loader_(loader), prefix_(std::move(prefix)) {}

  void vector(const std::string& name, int64_t size, std::vector<float>& out);
  // "<name>.weight" plus `offset`.
  void norm_weight(const std::string& name, int64_t size, float offset, std::vector<float>& out);
  // See Linear::load.
  void linear(const std::vector<std::string>& names, int64_t input_size,
              const std::vector<int64_t>& output_sizes, bool biases, Linear& out,
              const std::vector<RowOrder>& row_orders = {}, const LinearSlice& slice = {});

  // Keeps a problem found elsewhere, if it is the first.
  void fail(Error problem);
  const Status& status() const { return status_; }

 private:
  const WeightLoader& loader_;
  std::string prefix_;
  Status status_;
};

}  // namespace tw
