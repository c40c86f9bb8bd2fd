#include "weights/schemes/gptq.h"

#include "weights/config_fields.h"
#include "weights/schemes/grouped_row.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

using kernels::WeightFormat;

struct GptqTensors {
  const StoredTensor* quants;
  const StoredTensor* zero_points;
  ScaleTensor scales;
  const StoredTensor* g_idx;   // or null
  std::vector<int32_t> order;  // empty: as stored
  int stored_zero_offset;      // what zero points are stored less
};

class GptqMatrix final : public StoredMatrix {
 public:
  GptqMatrix(GptqTensors tensors, WeightFormat format, int64_t rows, int64_t columns)
      : StoredMatrix(list(tensors), format, rows, columns),
        t_(std::move(tensors)),
        has_output_scales_(!t_.scales.fits_f16()) {}

  bool has_output_scales() const override { return has_output_scales_; }
  std::span<const int32_t> input_order() const override { return t_.order; }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    GroupedRow packed;
    for (int64_t word = 0; word < columns() / 8; ++word) {
      const uint32_t eight = word_at(*t_.quants, word * rows() + row);
      for (int64_t i = 0; i < 8; ++i) packed.quants.push_back(nibble_at(eight, i));
    }
    apply_order(t_.order, packed.quants);
    for (int64_t group = 0; group < t_.scales.tensor().shape[0]; ++group) {
      packed.scales.push_back(t_.scales.at(group * rows() + row));
      const uint32_t word = word_at(*t_.zero_points, group * (rows() / 8) + row / 8);
      packed.zero_points.push_back(
          static_cast<uint8_t>(nibble_at(word, row % 8) + t_.stored_zero_offset));
    }
    write_row(packed, format(), channel);
  }

 private:
  static std::vector<const StoredTensor*> list(const GptqTensors& t) {
    std::vector<const StoredTensor*> tensors = {t.quants, t.zero_points, &t.scales.tensor()};
    if (t.g_idx != nullptr) tensors.push_back(t.g_idx);
    return tensors;
  }

  GptqTensors t_;
  bool has_output_scales_;
};

class GptqScheme final : public Scheme {
 public:
  GptqScheme(int64_t group_size, int stored_zero_offset)
      : group_size_(group_size), stored_zero_offset_(stored_zero_offset) {}

  Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                               const std::string& module, int64_t rows,
                                               int64_t columns) const override {
    if (is_left_plain(checkpoint, module, ".qweight")) {
      return open_plain_matrix(checkpoint, module, rows, columns);
    }
    if (rows % 8 != 0 || columns % 8 != 0) {
      return error(ErrorCode::unsupported,
                   "{}: {} is [{}, {}], expected multiples of 8 in a GPTQ checkpoint",
                   checkpoint.path().string(), module, rows, columns);
    }
    const auto groups = count_groups(checkpoint, module, group_size_, columns, 32);
    if (!groups) return tl::unexpected(groups.error());
    auto quants =
        require_tensor(checkpoint, module + ".qweight", StorageType::i32, {columns / 8, rows});
    if (!quants) return forward_error(quants);
    auto zero_points =
        require_tensor(checkpoint, module + ".qzeros", StorageType::i32, {*groups, rows / 8});
    if (!zero_points) return forward_error(zero_points);
    auto scales = ScaleTensor::open(checkpoint, module + ".scales", {*groups, rows}, kFloatScales);
    if (!scales) return forward_error(scales);
    GptqTensors tensors{*quants, *zero_points, *scales, nullptr, {}, stored_zero_offset_};
    if (checkpoint.find(module + ".g_idx") != nullptr) {
      auto g_idx = require_tensor(checkpoint, module + ".g_idx", StorageType::i32, {columns});
      if (!g_idx) return forward_error(g_idx);
      auto order = order_by_group(checkpoint, **g_idx, *groups);
      if (!order) return forward_error(order);
      tensors.g_idx = *g_idx;
      tensors.order = std::move(*order);
    }
    const bool is_even =
        all_words_are(**zero_points, stored_zero_offset_ == 0 ? 0x88888888u : 0x77777777u);
    return std::make_unique<GptqMatrix>(
        std::move(tensors), is_even ? WeightFormat::q4_0 : WeightFormat::q4_z, rows, columns);
  }

 private:
  int64_t group_size_;
  int stored_zero_offset_;
};

}  // namespace

Expected<std::unique_ptr<const Scheme>> make_gptq_scheme(const Json& quantization_config,
                                                         const std::string& source) {
  ConfigFields fields(quantization_config, source + ": quantization_config");
  fields.integer("bits", 4, 4);
  const int64_t group_size = fields.integer("group_size", -1, int64_t{1} << 31, 128);
  const std::string format = fields.string("checkpoint_format", "gptq");
  if (!fields.status()) return tl::unexpected(fields.status().error());
  if (format != "gptq" && format != "gptq_v2") {
    return error(ErrorCode::unsupported,
                 "{}: checkpoint_format {} is not supported; known are gptq and gptq_v2", source,
                 format);
  }
  return std::make_unique<GptqScheme>(group_size, format == "gptq" ? 1 : 0);
}

}  // namespace tw
