#include "nn/load_sequence.h"

namespace tw {

void LoadSequence::vector(const std::string& name, int64_t size, std::vector<float>& out) {
  if (!status_) return;
  auto values = loader_.load_vector(prefix_ + name, size);
  if (values) {
    out = std::move(*values);
  } else {
    status_ = tl::unexpected(std::move(values.error()));
  }
}

void LoadSequence::norm_weight(const std::string& name, int64_t size, float offset,
                               std::vector<float>& out) {
  vector(name + ".weight", size, out);
  for (float& weight : out) weight += offset;
}

void LoadSequence::fail(Error problem) {
  if (status_) status_ = tl::unexpected(std::move(problem));
}

void LoadSequence::linear(const std::vector<std::string>& names, int64_t input_size,
                          const std::vector<int64_t>& output_sizes, bool biases, Linear& out,
                          const std::vector<RowOrder>& row_orders, const LinearSlice& slice) {
  if (!status_) return;
  std::vector<std::string> prefixed;
  for (const std::string& name : names) prefixed.push_back(prefix_ + name);
  auto linear =
      Linear::load(loader_, prefixed, input_size, output_sizes, biases, row_orders, slice);
  if (linear) {
    out = std::move(*linear);
  } else {
    status_ = tl::unexpected(std::move(linear.error()));
  }
}

}  // namespace tw
