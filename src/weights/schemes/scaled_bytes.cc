#include "weights/schemes/scaled_bytes.h"

#include <fmt/ranges.h>

#include "weights/schemes/grouped_row.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

using kernels::WeightFormat;

constexpr int64_t kGroup = kernels::traits(WeightFormat::fp8).group_size;

int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

class ScaledBytesMatrix final : public StoredMatrix {
 public:
  // Scale (n / row_extent, k / column_extent) belongs to weight (n, k).
  struct Grid {
    int64_t row_extent;
    int64_t column_extent;
  };

  ScaledBytesMatrix(const StoredTensor& weight, const ScaleTensor& scales, Grid grid,
                    WeightFormat format)
      : StoredMatrix({&weight, &scales.tensor()}, format, weight.shape[0], weight.shape[1]),
        weight_(weight),
        scales_(scales),
        grid_(grid) {}

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    const std::byte* bytes = weight_.data.data() + row * columns();
    for (int64_t k = 0; k < columns(); ++k) {
      channel.set_quant8(k, std::to_integer<int>(bytes[k]));
    }
    const int64_t scale_row = row / grid_.row_extent * divide_up(columns(), grid_.column_extent);
    const int64_t num_groups = format() == WeightFormat::int8 ? 1 : divide_up(columns(), kGroup);
    for (int64_t group = 0; group < num_groups; ++group) {
      channel.set_scale(group, scales_.at(scale_row + group * kGroup / grid_.column_extent));
    }
  }

 private:
  const StoredTensor& weight_;
  ScaleTensor scales_;
  Grid grid_;
};

class ScaledBytesScheme final : public Scheme {
 public:
  explicit ScaledBytesScheme(const ScaledBytes& layout) : layout_(layout) {}

  Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                               const std::string& module, int64_t rows,
                                               int64_t columns) const override {
    const std::string weight_name = module + ".weight";
    const StoredTensor* stored = checkpoint.find(weight_name);
    if (stored != nullptr && is_float(stored->type)) {
      return open_plain_matrix(checkpoint, module, rows, columns);
    }
    const bool is_int8 = layout_.format == WeightFormat::int8;
    auto weight = require_tensor(checkpoint, weight_name,
                                 is_int8 ? StorageType::i8 : StorageType::f8_e4m3, {rows, columns});
    if (!weight) return forward_error(weight);
    if (is_int8 && columns > kernels::kMaxInt8Depth) {
      return error(ErrorCode::unsupported,
                   "{}: tensor {} has {} columns; int8 products are summed in 32 bits, which at "
                   "most {} columns fit",
                   checkpoint.path().string(), weight_name, columns, kernels::kMaxInt8Depth);
    }
    const std::string scale_name = module + "." + layout_.scale_name;
    auto shape = scale_shape(checkpoint, scale_name, rows, columns);
    if (!shape) return forward_error(shape);
    auto scales = ScaleTensor::open(checkpoint, scale_name, *shape, kFloatScales);
    if (!scales) return forward_error(scales);
    return std::make_unique<ScaledBytesMatrix>(**weight, *scales, grid(*shape, rows, columns),
                                               layout_.format);
  }

 private:
  // The shape that the scales must have: of those that are possible, the one that they do have.
  Expected<std::vector<int64_t>> scale_shape(const Checkpoint& checkpoint, const std::string& name,
                                             int64_t rows, int64_t columns) const {
    if (layout_.block_rows > 0) {
      return std::vector{divide_up(rows, layout_.block_rows),
                         divide_up(columns, layout_.block_columns)};
    }
    auto tensor = checkpoint.require(name);
    if (!tensor) return forward_error(tensor);
    const std::vector<int64_t>& shape = (*tensor)->shape;
    for (const std::vector<int64_t>& valid :
         {std::vector<int64_t>{}, {1}, {1, 1}, {rows}, {rows, 1}}) {
      if (shape == valid) return shape;
    }
    return error(ErrorCode::corrupt_data,
                 "{}: tensor {} has shape [{}], expected [{}, 1] or [{}] (a scale per channel), or "
                 "[1] or [] (one for the tensor)",
                 checkpoint.path().string(), name, fmt::join(shape, ", "), rows, rows);
  }

  ScaledBytesMatrix::Grid grid(const std::vector<int64_t>& shape, int64_t rows,
                               int64_t columns) const {
    if (layout_.block_rows > 0) return {layout_.block_rows, layout_.block_columns};
    const bool per_channel = !shape.empty() && shape[0] == rows;
    return {per_channel ? 1 : rows, columns};
  }

  ScaledBytes layout_;
};

}  // namespace

std::unique_ptr<const Scheme> make_scaled_bytes_scheme(const ScaledBytes& layout) {
  return std::make_unique<ScaledBytesScheme>(layout);
}

Status read_block_size(ConfigFields& fields, const char* field, ScaledBytes& layout) {
  if (!fields.has(field)) return {};
  const std::vector<int64_t> extents = fields.integers(field, 1, int64_t{1} << 30);
  if (!fields.status()) return fields.status();
  if (extents.size() != 2 || extents[1] % kGroup != 0) {
    fields.fail(field, fields.find(field),
                fmt::format("[rows, columns] of a block, columns a multiple of {}", kGroup));
    return fields.status();
  }
  layout.block_rows = extents[0];
  layout.block_columns = extents[1];
  return {};
}

}  // namespace tw
