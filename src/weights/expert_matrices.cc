#include "weights/expert_matrices.h"

#include <cstring>

#include "core/dtype.h"
#include "weights/schemes/fp4.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

using MatrixResult = Expected<std::unique_ptr<StoredMatrix>>;

// The part of a tensor [E, rows, columns] that belongs to one expert.
StoredTensor slice(const StoredTensor& tensor, int64_t expert) {
  StoredTensor part;
  part.name = tensor.name;
  part.type = tensor.type;
  part.shape.assign(tensor.shape.begin() + 1, tensor.shape.end());
  const size_t bytes = tensor.data.size() / static_cast<size_t>(tensor.shape[0]);
  part.data = tensor.data.subspan(static_cast<size_t>(expert) * bytes, bytes);
  return part;
}

// Chosen rows of an expert's part of a tensor [E, stored rows, columns].
class ExpertSlice final : public StoredMatrix {
 public:
  static MatrixResult open(const Checkpoint& checkpoint, const StoredTensor& tensor, int64_t expert,
                           RowSelection selection, int64_t rows) {
    auto part = std::make_unique<StoredTensor>(slice(tensor, expert));
    auto matrix = make_plain_matrix(*part);
    if (!matrix) {
      return error(matrix.error().code, "{}: {}", checkpoint.path().string(),
                   matrix.error().message);
    }
    return std::unique_ptr<StoredMatrix>(
        new ExpertSlice(tensor, std::move(part), std::move(*matrix), selection, rows));
  }

  bool has_output_scales() const override { return matrix_->has_output_scales(); }
  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    matrix_->pack_row(selection_.first + row * selection_.step, channel);
  }

 private:
  ExpertSlice(const StoredTensor& tensor, std::unique_ptr<StoredTensor> part,
              std::unique_ptr<StoredMatrix> matrix, RowSelection selection, int64_t rows)
      : StoredMatrix({&tensor}, matrix->format(), rows, matrix->columns()),
        part_(std::move(part)),
        matrix_(std::move(matrix)),
        selection_(selection) {}

  std::unique_ptr<StoredTensor> part_;
  std::unique_ptr<StoredMatrix> matrix_;  // of part_
  RowSelection selection_;
};

// The same of a tensor [E, columns, stored rows] of floats.
class TransposedSlice final : public StoredMatrix {
 public:
  static MatrixResult open(const Checkpoint& checkpoint, const StoredTensor& tensor, int64_t expert,
                           RowSelection selection, int64_t rows) {
    if (traits(tensor.type).block_elements != 1 || !is_float(tensor.type)) {
      return error(ErrorCode::unsupported,
                   "{}: tensor {} has type {}, expected F32, F16 or BF16, as its rows are inputs",
                   checkpoint.path().string(), tensor.name, traits(tensor.type).name);
    }
    return std::unique_ptr<StoredMatrix>(new TransposedSlice(tensor, expert, selection, rows));
  }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    const int64_t stored_rows = tensor_.shape[2];
    const int64_t element = traits(tensor_.type).block_bytes;
    const std::byte* data = data_.data() + (selection_.first + row * selection_.step) * element;
    for (int64_t k = 0; k < columns(); ++k, data += stored_rows * element) {
      if (tensor_.type == StorageType::bf16) {
        uint16_t bits;
        std::memcpy(&bits, data, sizeof(bits));
        channel.set_bf16(k, bits);
      } else {
        float value;
        dequantize(tensor_.type, data, 1, &value);
        channel.set_bf16(k, to_bf16(value).bits);
      }
    }
  }

 private:
  TransposedSlice(const StoredTensor& tensor, int64_t expert, RowSelection selection, int64_t rows)
      : StoredMatrix({&tensor}, kernels::WeightFormat::bf16, rows, tensor.shape[1]),
        tensor_(tensor),
        data_(slice(tensor, expert).data),
        selection_(selection) {}

  const StoredTensor& tensor_;
  std::span<const std::byte> data_;
  RowSelection selection_;
};

// A tensor of floats [E, size], as rows of each expert.
Expected<std::vector<std::vector<float>>> load_bias(const Checkpoint& checkpoint,
                                                    const std::string& name, int64_t num_experts,
                                                    int64_t stored_size, RowSelection selection,
                                                    int64_t size) {
  auto tensor = require_shape(checkpoint, name, {num_experts, stored_size});
  if (!tensor) return forward_error(tensor);
  if (!is_float((*tensor)->type)) {
    return error(ErrorCode::unsupported, "{}: tensor {} has type {}, expected F32, F16 or BF16",
                 checkpoint.path().string(), name, traits((*tensor)->type).name);
  }
  std::vector<float> all(static_cast<size_t>(num_experts * stored_size));
  dequantize((*tensor)->type, (*tensor)->data.data(), num_experts * stored_size, all.data());
  std::vector<std::vector<float>> biases;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    std::vector<float>& bias = biases.emplace_back();
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = selection.first + i * selection.step;
      bias.push_back(all[static_cast<size_t>(expert * stored_size + row)]);
    }
  }
  return biases;
}

// Collects matrices and biases until the first problem.
class Opener {
 public:
  Opener(const Checkpoint& checkpoint, const Scheme& scheme, const std::string& prefix,
         const ExpertLayout& layout)
      : checkpoint_(checkpoint), scheme_(scheme), prefix_(prefix), l_(layout) {}

  Expected<ExpertMatrices> open() {
    const bool is_gguf = has(".gate_proj.weight");
    const int64_t size = l_.intermediate_size, hidden = l_.hidden_size;
    for (int64_t e = 0; e < l_.num_experts && status_; ++e) {
      if (is_gguf) {
        open_stacked(e);
      } else if (has(".gate_up_proj_blocks")) {
        open_mxfp4(e);
      } else if (has(".gate_up_proj")) {
        open_fused(e);
      } else {
        open_modules(e);
      }
    }
    if (l_.has_bias && is_gguf) {
      bias(".gate_proj.bias", size, {}, size, matrices_.gate_bias);
      bias(".up_proj.bias", size, {}, size, matrices_.up_bias);
      bias(".down_proj.bias", hidden, {}, hidden, matrices_.down_bias);
    } else if (l_.has_bias) {
      bias(".gate_up_proj_bias", 2 * size, gate_rows(), size, matrices_.gate_bias);
      bias(".gate_up_proj_bias", 2 * size, up_rows(), size, matrices_.up_bias);
      bias(".down_proj_bias", hidden, {}, hidden, matrices_.down_bias);
    }
    if (!status_) return forward_error(status_);
    if (Status status = check_count(); !status) return forward_error(status);
    return std::move(matrices_);
  }

 private:
  using Matrices = std::vector<std::unique_ptr<StoredMatrix>>;

  bool has(const char* name) const { return checkpoint_.find(prefix_ + name) != nullptr; }

  // Experts beyond the last would be left out without a word.
  Status check_count() const {
    const std::string next = fmt::format("{}.{}.{}", prefix_, l_.num_experts, l_.down_name);
    if (!scheme_.open(checkpoint_, next, l_.hidden_size, l_.intermediate_size)) return {};
    return error(ErrorCode::corrupt_data, "{}: has {}, but config.json says {} experts",
                 checkpoint_.path().string(), next, l_.num_experts);
  }

  // Where gate and up lie among the rows of a tensor of both.
  RowSelection gate_rows() const { return {0, l_.is_interleaved ? 2 : 1}; }
  RowSelection up_rows() const {
    return l_.is_interleaved ? RowSelection{1, 2} : RowSelection{l_.intermediate_size, 1};
  }

  void add(MatrixResult matrix, Matrices& out) {
    if (!status_) return;
    if (matrix) {
      out.push_back(std::move(*matrix));
    } else {
      status_ = tl::unexpected(std::move(matrix.error()));
    }
  }

  void open_modules(int64_t e) {
    const auto module = [&](const std::string& name, int64_t rows, int64_t columns, Matrices& out) {
      if (!status_) return;
      add(scheme_.open(checkpoint_, fmt::format("{}.{}.{}", prefix_, e, name), rows, columns), out);
    };
    module(l_.gate_name, l_.intermediate_size, l_.hidden_size, matrices_.gate);
    module(l_.up_name, l_.intermediate_size, l_.hidden_size, matrices_.up);
    module(l_.down_name, l_.hidden_size, l_.intermediate_size, matrices_.down);
  }

  MatrixResult part(const char* name, int64_t e, int64_t stored_rows, int64_t columns,
                    RowSelection selection, int64_t rows, bool transposed) {
    std::vector<int64_t> shape = {l_.num_experts, stored_rows, columns};
    if (transposed) std::swap(shape[1], shape[2]);
    auto tensor = require_shape(checkpoint_, prefix_ + name, shape);
    if (!tensor) return forward_error(tensor);
    if (transposed) return TransposedSlice::open(checkpoint_, **tensor, e, selection, rows);
    return ExpertSlice::open(checkpoint_, **tensor, e, selection, rows);
  }

  void open_fused(int64_t e) {
    const int64_t size = l_.intermediate_size, hidden = l_.hidden_size;
    const bool t = l_.is_transposed;
    add(part(".gate_up_proj", e, 2 * size, hidden, gate_rows(), size, t), matrices_.gate);
    add(part(".gate_up_proj", e, 2 * size, hidden, up_rows(), size, t), matrices_.up);
    add(part(".down_proj", e, hidden, size, {}, hidden, t), matrices_.down);
  }

  void open_stacked(int64_t e) {
    const int64_t size = l_.intermediate_size, hidden = l_.hidden_size;
    add(part(".gate_proj.weight", e, size, hidden, {}, size, false), matrices_.gate);
    add(part(".up_proj.weight", e, size, hidden, {}, size, false), matrices_.up);
    add(part(".down_proj.weight", e, hidden, size, {}, hidden, false), matrices_.down);
  }

  void open_mxfp4(int64_t e) {
    const int64_t size = l_.intermediate_size, hidden = l_.hidden_size;
    const auto expert = [&](const char* name, int64_t stored_rows, int64_t columns,
                            RowSelection selection, int64_t rows, Matrices& out) {
      if (!status_) return;
      add(open_mxfp4_expert(checkpoint_, prefix_ + name, l_.num_experts, stored_rows, columns, e,
                            selection, rows),
          out);
    };
    expert(".gate_up_proj", 2 * size, hidden, gate_rows(), size, matrices_.gate);
    expert(".gate_up_proj", 2 * size, hidden, up_rows(), size, matrices_.up);
    expert(".down_proj", hidden, size, {}, hidden, matrices_.down);
  }

  void bias(const char* name, int64_t stored_size, RowSelection selection, int64_t size,
            std::vector<std::vector<float>>& out) {
    if (!status_) return;
    auto biases =
        load_bias(checkpoint_, prefix_ + name, l_.num_experts, stored_size, selection, size);
    if (biases) {
      out = std::move(*biases);
    } else {
      status_ = tl::unexpected(std::move(biases.error()));
    }
  }

  const Checkpoint& checkpoint_;
  const Scheme& scheme_;
  const std::string& prefix_;
  const ExpertLayout& l_;
  ExpertMatrices matrices_;
  Status status_;
};

}  // namespace

Expected<ExpertMatrices> open_experts(const Checkpoint& checkpoint, const Scheme& scheme,
                                      const std::string& prefix, const ExpertLayout& layout) {
  return Opener(checkpoint, scheme, prefix, layout).open();
}

}  // namespace tw
