#include "weights/schemes/fp4.h"

#include <cmath>

#include "core/check.h"
#include "weights/schemes/grouped_row.h"
#include "weights/schemes/plain.h"

namespace tw {
namespace {

using kernels::WeightFormat;

constexpr StorageType kE4m3Scales[] = {StorageType::f8_e4m3};
constexpr StorageType kE8m0Scales[] = {StorageType::u8};

// Factors of packed formats are e2m1 values times two.
constexpr float kScalePerStored = 0.5f;

class Fp4Matrix final : public StoredMatrix {
 public:
  struct Source {
    const StoredTensor* quants;
    ScaleTensor scales;
    const StoredTensor* tensor_scale = nullptr;
    float output_scale = 1.0f;
    int64_t row_offset = 0;  // rows before the first, of this expert's and all before it
    RowSelection selection = {};
  };

  Fp4Matrix(const Source& source, WeightFormat format, int64_t rows, int64_t columns)
      : StoredMatrix(list(source), format, rows, columns), source_(source) {
    has_output_scales_ = source.output_scale != 1.0f || !source.scales.fits_f16(kScalePerStored);
  }

  bool has_output_scales() const override { return has_output_scales_; }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    const int64_t stored_row =
        source_.row_offset + source_.selection.first + row * source_.selection.step;
    const std::byte* bytes = source_.quants->data.data() + stored_row * (columns() / 2);
    GroupedRow packed;
    for (int64_t i = 0; i < columns() / 2; ++i) {
      packed.quants.push_back(std::to_integer<uint8_t>(bytes[i] & std::byte{15}));
      packed.quants.push_back(std::to_integer<uint8_t>(bytes[i] >> 4));
    }
    const int64_t num_groups = columns() / kernels::traits(format()).group_size;
    for (int64_t group = 0; group < num_groups; ++group) {
      packed.scales.push_back(source_.scales.at(stored_row * num_groups + group) * kScalePerStored);
    }
    if (channel.output_scale != nullptr) *channel.output_scale = source_.output_scale;
    write_row(packed, format(), channel);
  }

 private:
  static std::vector<const StoredTensor*> list(const Source& source) {
    std::vector<const StoredTensor*> tensors = {source.quants, &source.scales.tensor()};
    if (source.tensor_scale != nullptr) tensors.push_back(source.tensor_scale);
    return tensors;
  }

  Source source_;
  bool has_output_scales_;
};

// What the schemes of one matrix per module differ in.
struct Naming {
  const char* quants;
  const char* tensor_scale;  // or null
  bool divides;              // by the tensor's scale
  WeightFormat format;
  std::span<const StorageType> scale_types;
};

constexpr Naming kModelopt = {".weight", ".weight_scale_2", false, WeightFormat::fp4_16,
                              kE4m3Scales};
constexpr Naming kNvfp4 = {".weight_packed", ".weight_global_scale", true, WeightFormat::fp4_16,
                           kE4m3Scales};
constexpr Naming kMxfp4 = {".weight_packed", nullptr, false, WeightFormat::fp4, kE8m0Scales};

// The one f32 of a tensor of shape [] or [1]: positive, and of a finite inverse.
Expected<const StoredTensor*> require_tensor_scale(const Checkpoint& checkpoint,
                                                   const std::string& name) {
  auto tensor = checkpoint.require(name);
  if (!tensor) return tensor;
  const std::vector<int64_t>& shape = (*tensor)->shape;
  if ((*tensor)->type != StorageType::f32 || !(shape.empty() || shape == std::vector<int64_t>{1})) {
    return error(ErrorCode::corrupt_data, "{}: tensor {} must be one F32 number",
                 checkpoint.path().string(), name);
  }
  float value = 0;
  dequantize(StorageType::f32, (*tensor)->data.data(), 1, &value);
  if (value > 0 && std::isfinite(value) && std::isfinite(1.0f / value)) return tensor;
  return error(ErrorCode::corrupt_data,
               "{}: tensor {} is {}, expected a positive number whose inverse is finite",
               checkpoint.path().string(), name, value);
}

class Fp4Scheme final : public Scheme {
 public:
  explicit Fp4Scheme(const Naming& naming) : naming_(naming) {}

  Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                               const std::string& module, int64_t rows,
                                               int64_t columns) const override {
    if (is_plain(checkpoint, module)) return open_plain_matrix(checkpoint, module, rows, columns);
    const int64_t group_size = kernels::traits(naming_.format).group_size;
    if (columns % group_size != 0) {
      return error(ErrorCode::unsupported, "{}: {} has {} columns, expected a multiple of {}",
                   checkpoint.path().string(), module, columns, group_size);
    }
    auto quants =
        require_tensor(checkpoint, module + naming_.quants, StorageType::u8, {rows, columns / 2});
    if (!quants) return forward_error(quants);
    auto scales = ScaleTensor::open(checkpoint, module + ".weight_scale",
                                    {rows, columns / group_size}, naming_.scale_types);
    if (!scales) return forward_error(scales);
    Fp4Matrix::Source source{*quants, *scales};
    if (naming_.tensor_scale != nullptr) {
      auto tensor_scale = require_tensor_scale(checkpoint, module + naming_.tensor_scale);
      if (!tensor_scale) return forward_error(tensor_scale);
      source.tensor_scale = *tensor_scale;
      float value = 0;
      dequantize(StorageType::f32, source.tensor_scale->data.data(), 1, &value);
      source.output_scale = naming_.divides ? 1.0f / value : value;
    }
    return std::make_unique<Fp4Matrix>(source, naming_.format, rows, columns);
  }

 private:
  // ModelOpt's quantized and plain layers have a tensor of the same name.
  bool is_plain(const Checkpoint& checkpoint, const std::string& module) const {
    const StoredTensor* weight = checkpoint.find(module + ".weight");
    if (weight == nullptr) return false;
    if (naming_.quants == std::string_view(".weight")) return weight->type != StorageType::u8;
    return is_left_plain(checkpoint, module, naming_.quants);
  }

  Naming naming_;
};

}  // namespace

std::unique_ptr<const Scheme> make_modelopt_nvfp4_scheme() {
  return std::make_unique<Fp4Scheme>(kModelopt);
}
std::unique_ptr<const Scheme> make_nvfp4_scheme() {
  return std::make_unique<Fp4Scheme>(kNvfp4);
}
std::unique_ptr<const Scheme> make_mxfp4_scheme() {
  return std::make_unique<Fp4Scheme>(kMxfp4);
}

Expected<std::unique_ptr<StoredMatrix>> open_mxfp4_expert(const Checkpoint& checkpoint,
                                                          const std::string& module,
                                                          int64_t num_experts, int64_t stored_rows,
                                                          int64_t columns, int64_t expert,
                                                          RowSelection selection, int64_t rows) {
  TW_CHECK(expert >= 0 && expert < num_experts && rows > 0 && selection.first >= 0 &&
           selection.first + (rows - 1) * selection.step < stored_rows);
  if (columns % 32 != 0) {
    return error(ErrorCode::unsupported, "{}: {} has {} columns, expected a multiple of 32",
                 checkpoint.path().string(), module, columns);
  }
  // The scales of this expert alone are checked.
  auto quants = require_tensor(checkpoint, module + "_blocks", StorageType::u8,
                               {num_experts, stored_rows, columns / 32, 16});
  if (!quants) return forward_error(quants);
  const int64_t scales_per_expert = stored_rows * (columns / 32);
  auto scales = ScaleTensor::open(
      checkpoint, module + "_scales", {num_experts, stored_rows, columns / 32}, kE8m0Scales,
      Range{expert * scales_per_expert, (expert + 1) * scales_per_expert});
  if (!scales) return forward_error(scales);
  Fp4Matrix::Source source{*quants, *scales};
  source.row_offset = expert * stored_rows;
  source.selection = selection;
  return std::make_unique<Fp4Matrix>(source, WeightFormat::fp4, rows, columns);
}

}  // namespace tw
