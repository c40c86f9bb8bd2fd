#include "weights/schemes/pack_quantized.h"

#include "weights/config_fields.h"
#include "weights/schemes/grouped_row.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

using kernels::WeightFormat;

struct PackQuantizedTensors {
  const StoredTensor* quants;
  ScaleTensor scales;
  const StoredTensor* zero_points;  // null: all 8
  const StoredTensor* g_idx;        // or null
  std::vector<int32_t> order;       // empty: as stored
};

class PackQuantizedMatrix final : public StoredMatrix {
 public:
  PackQuantizedMatrix(PackQuantizedTensors tensors, int64_t rows, int64_t columns)
      : StoredMatrix(list(tensors),
                     tensors.zero_points == nullptr ? WeightFormat::q4_0 : WeightFormat::q4_z, rows,
                     columns),
        t_(std::move(tensors)),
        has_output_scales_(!t_.scales.fits_f16()) {}

  bool has_output_scales() const override { return has_output_scales_; }
  std::span<const int32_t> input_order() const override { return t_.order; }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    const int64_t words = (columns() + 7) / 8;
    GroupedRow packed;
    for (int64_t k = 0; k < columns(); ++k) {
      packed.quants.push_back(nibble_at(word_at(*t_.quants, row * words + k / 8), k % 8));
    }
    apply_order(t_.order, packed.quants);
    const int64_t num_groups = t_.scales.tensor().shape[1];
    for (int64_t group = 0; group < num_groups; ++group) {
      packed.scales.push_back(t_.scales.at(row * num_groups + group));
      if (t_.zero_points == nullptr) continue;
      packed.zero_points.push_back(
          nibble_at(word_at(*t_.zero_points, row / 8 * num_groups + group), row % 8));
    }
    write_row(packed, format(), channel);
  }

 private:
  static std::vector<const StoredTensor*> list(const PackQuantizedTensors& t) {
    std::vector<const StoredTensor*> tensors = {t.quants, &t.scales.tensor()};
    if (t.zero_points != nullptr) tensors.push_back(t.zero_points);
    if (t.g_idx != nullptr) tensors.push_back(t.g_idx);
    return tensors;
  }

  PackQuantizedTensors t_;
  bool has_output_scales_;
};

// weight_shape, where it is stored, must be what the model's configuration says.
Status check_shape_tensor(const Checkpoint& checkpoint, const std::string& name, int64_t rows,
                          int64_t columns) {
  const StoredTensor* stored = checkpoint.find(name);
  if (stored == nullptr) return {};
  auto shape = require_shape(checkpoint, name, {2});
  if (!shape) return forward_error(shape);
  float values[2];
  dequantize(stored->type, stored->data.data(), 2, values);
  if (values[0] == static_cast<float>(rows) && values[1] == static_cast<float>(columns)) return {};
  return error(ErrorCode::corrupt_data, "{}: tensor {} says [{}, {}], expected [{}, {}]",
               checkpoint.path().string(), name, values[0], values[1], rows, columns);
}

class PackQuantizedScheme final : public Scheme {
 public:
  PackQuantizedScheme(int64_t group_size, bool symmetric)
      : group_size_(group_size), symmetric_(symmetric) {}

  Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                               const std::string& module, int64_t rows,
                                               int64_t columns) const override {
    if (is_left_plain(checkpoint, module, ".weight_packed")) {
      return open_plain_matrix(checkpoint, module, rows, columns);
    }
    const auto groups = count_groups(checkpoint, module, group_size_, columns, 32);
    if (!groups) return tl::unexpected(groups.error());
    if (Status status = check_shape_tensor(checkpoint, module + ".weight_shape", rows, columns);
        !status) {
      return forward_error(status);
    }
    auto quants = require_tensor(checkpoint, module + ".weight_packed", StorageType::i32,
                                 {rows, (columns + 7) / 8});
    if (!quants) return forward_error(quants);
    auto scales =
        ScaleTensor::open(checkpoint, module + ".weight_scale", {rows, *groups}, kFloatScales);
    if (!scales) return forward_error(scales);
    PackQuantizedTensors tensors{*quants, *scales, nullptr, nullptr, {}};
    if (!symmetric_) {
      auto zero_points = require_tensor(checkpoint, module + ".weight_zero_point", StorageType::i32,
                                        {(rows + 7) / 8, *groups});
      if (!zero_points) return forward_error(zero_points);
      tensors.zero_points = *zero_points;
    }
    if (checkpoint.find(module + ".weight_g_idx") != nullptr) {
      auto g_idx =
          require_tensor(checkpoint, module + ".weight_g_idx", StorageType::i32, {columns});
      if (!g_idx) return forward_error(g_idx);
      auto order = order_by_group(checkpoint, **g_idx, *groups);
      if (!order) return forward_error(order);
      tensors.g_idx = *g_idx;
      tensors.order = std::move(*order);
    }
    return std::make_unique<PackQuantizedMatrix>(std::move(tensors), rows, columns);
  }

 private:
  int64_t group_size_;
  bool symmetric_;
};

}  // namespace

Expected<std::unique_ptr<const Scheme>> make_pack_quantized_scheme(const Json& weights,
                                                                   const std::string& source) {
  ConfigFields fields(weights, source);
  fields.integer("num_bits", 4, 4);
  const std::string strategy = fields.string("strategy", "group");
  int64_t group_size = -1;
  if (strategy == "group") group_size = fields.integer("group_size", 1, int64_t{1} << 31);
  const bool symmetric = fields.boolean("symmetric", true);
  if (!fields.status()) return tl::unexpected(fields.status().error());
  if (strategy != "group" && strategy != "channel") {
    return error(ErrorCode::unsupported,
                 "{}: strategy {} is not supported for 4-bit integers; known are group and channel",
                 source, strategy);
  }
  return std::make_unique<PackQuantizedScheme>(group_size, symmetric);
}

}  // namespace tw
