#include "nn/loader.h"

#include <fmt/ranges.h>

#include <cmath>
#include <numeric>

#include "weights/sliced_matrix.h"

namespace tw {

const kernels::GemmKernel& WeightLoader::select_prefill_gemm(kernels::WeightFormat format) const {
  if (!separate_prefill_kernels) return kernels::select_gemm(format, precision, features);
  return kernels::select_prefill_gemm(format, prefill_precision.value_or(precision), features);
}

TensorShard WeightLoader::expert_shard() const {
  if (experts.num_groups == 1) return shard;
  const int size = shard.size / experts.num_groups, rank = shard.rank % size;
  return {rank, size, rank, rank + 1, size};
}

Expected<Range> WeightLoader::share_of_columns(const std::string& module, int64_t rows,
                                               int64_t columns,
                                               std::initializer_list<int64_t> units) const {
  if (shard.is_whole()) return Range{0, columns};
  auto matrix = scheme->open(checkpoint, module, rows, columns);
  if (!matrix) return forward_error(matrix);
  return share_of_columns(**matrix, units);
}

Expected<Range> WeightLoader::share_of_columns(const StoredMatrix& matrix,
                                               std::initializer_list<int64_t> units) const {
  const int64_t columns = matrix.columns();
  if (shard.is_whole()) return Range{0, columns};
  if (!matrix.input_order().empty()) {
    return error(
        ErrorCode::unsupported,
        "{}: {} has its columns in another order (act-order), which --tp can't divide; use "
        "a checkpoint quantized with desc_act false, or --tp 1",
        checkpoint.path().string(), matrix.name());
  }
  const int64_t block = SlicedColumns::column_block(matrix.format());
  int64_t unit = block;
  for (const int64_t each : units) {
    unit = std::lcm(block, each);
    if ((columns + unit - 1) / unit >= shard.size) break;
  }
  return shard.share(columns, unit);
}

Expected<std::vector<float>> WeightLoader::load_vector(std::string_view name, int64_t size,
                                                       const RowOrder& row_order) const {
  auto tensor = checkpoint.require(name);
  if (!tensor) return forward_error(tensor);
  const StoredTensor& stored = **tensor;
  if (stored.shape.size() != 1 || stored.shape[0] != size) {
    return error(ErrorCode::corrupt_data, "{}: tensor {} has shape [{}], expected [{}]",
                 checkpoint.path().string(), name, fmt::join(stored.shape, ", "), size);
  }
  std::vector<float> in_file(static_cast<size_t>(size));
  dequantize(stored.type, stored.data.data(), size, in_file.data());
  std::vector<float> values(in_file.size());
  for (int64_t i = 0; i < size; ++i) {
    values[static_cast<size_t>(i)] = in_file[static_cast<size_t>(
        stored.row_order.stored_row(row_order.stored_row(i, size), size))];
  }
  if (on_progress) on_progress(static_cast<int64_t>(stored.data.size()));
  return values;
}

Expected<float> WeightLoader::load_scale(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    const StoredTensor* stored = checkpoint.find(name);
    if (stored == nullptr) continue;
    int64_t size = 1;
    for (const int64_t extent : stored->shape) size *= extent;
    float scale = 0;
    if (size == 1) dequantize(stored->type, stored->data.data(), 1, &scale);
    if (!(scale > 0) || !std::isfinite(scale)) {
      return error(ErrorCode::corrupt_data,
                   "{}: tensor {} (shape [{}], value {}) must be one finite number above zero",
                   checkpoint.path().string(), name, fmt::join(stored->shape, ", "), scale);
    }
    return scale;
  }
  return 1.0f;
}

}  // namespace tw
