#include "weights/schemes/grouped_row.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/check.h"
#include "core/dtype.h"
#include "weights/schemes/scheme.h"

namespace tw {
namespace {

template <typename T>
T read(const StoredTensor& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.data.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

int64_t count(const StoredTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

// The power of two that, times 2^14 to 2^15, gives the largest scale.
float power_below(std::span<const float> scales) {
  float largest = 0;
  for (const float scale : scales) largest = std::max(largest, std::abs(scale));
  if (largest == 0) return 1.0f;
  return std::ldexp(1.0f, std::max(std::ilogb(largest) - 14, -126));
}

}  // namespace

void write_row(const GroupedRow& row, kernels::WeightFormat format, const ChannelWriter& channel) {
  const kernels::WeightFormatTraits t = kernels::traits(format);
  const auto columns = static_cast<int64_t>(row.quants.size());
  for (int64_t begin = 0; begin < columns; begin += 32) {
    for (int64_t k = begin; k < begin + 16; ++k) {
      const auto quant = [&](int64_t at) {
        return at < columns ? row.quants[static_cast<size_t>(at)] : 0;
      };
      channel.set_nibbles(k, static_cast<std::byte>(quant(k) | quant(k + 16) << 4));
    }
  }
  float power = 1.0f;
  if (channel.output_scale != nullptr) {
    power = power_below(row.scales);
    *channel.output_scale *= power;
  }
  const auto num_groups = static_cast<int64_t>(row.scales.size());
  const int64_t stored_size = (columns + num_groups - 1) / num_groups;
  for (int64_t k = 0; k < columns; k += t.group_size) {
    const auto stored = static_cast<size_t>(k / stored_size);
    channel.set_scale(k / t.group_size, to_f16(row.scales[stored] / power));
    if (t.has_zero_points) channel.set_zero_point(k / t.group_size, row.zero_points[stored]);
  }
}

float ScaleTensor::at(int64_t index) const {
  const StoredTensor& tensor = *tensor_;
  switch (tensor.type) {
    case StorageType::f16:
      return to_float(read<f16_t>(tensor, index));
    case StorageType::bf16:
      return to_float(read<bf16_t>(tensor, index));
    case StorageType::f32:
      return read<float>(tensor, index);
    case StorageType::f8_e4m3:
      return to_float(read<f8_e4m3_t>(tensor, index));
    case StorageType::u8: {
      const auto exponent = read<uint8_t>(tensor, index);
      return exponent == 255 ? NAN : std::ldexp(1.0f, exponent - 127);
    }
    default:
      check_failed("a type of scales", __FILE__, __LINE__);
  }
}

Expected<ScaleTensor> ScaleTensor::open(const Checkpoint& checkpoint, const std::string& name,
                                        const std::vector<int64_t>& shape,
                                        std::span<const StorageType> types,
                                        std::optional<Range> elements) {
  auto tensor = require_shape(checkpoint, name, shape);
  if (!tensor) return forward_error(tensor);
  const StoredTensor& scales = **tensor;
  if (std::ranges::find(types, scales.type) == types.end()) {
    std::vector<const char*> valid;
    for (const StorageType type : types) valid.push_back(traits(type).name);
    return error(ErrorCode::unsupported, "{}: tensor {} has type {}, expected {}",
                 checkpoint.path().string(), name, traits(scales.type).name,
                 fmt::join(valid, " or "));
  }
  const ScaleTensor result(scales, elements.value_or(Range{0, count(scales)}));
  for (int64_t i = result.elements_.begin; i < result.elements_.end; ++i) {
    const float scale = result.at(i);
    if (std::isfinite(scale)) continue;
    return error(ErrorCode::corrupt_data,
                 "{}: tensor {} has the scale {} at element {}, expected a finite number",
                 checkpoint.path().string(), name, scale, i);
  }
  return result;
}

bool ScaleTensor::fits_f16(float factor) const {
  if (tensor_->type == StorageType::f16 && factor == 1.0f) return true;
  for (int64_t i = elements_.begin; i < elements_.end; ++i) {
    const float scale = factor * at(i);
    if (to_float(to_f16(scale)) != scale) return false;
  }
  return true;
}

Expected<int64_t> count_groups(const Checkpoint& checkpoint, const std::string& module,
                               int64_t group_size, int64_t columns, int64_t multiple) {
  if (group_size == -1 || group_size == columns) return 1;
  if (group_size > 0 && group_size % multiple == 0 && columns % group_size == 0) {
    return columns / group_size;
  }
  return error(
      ErrorCode::unsupported,
      "{}: {} has {} columns in groups of {}; the group size must be a multiple of {} that "
      "divides the columns, or -1",
      checkpoint.path().string(), module, columns, group_size, multiple);
}

Expected<std::vector<int32_t>> order_by_group(const Checkpoint& checkpoint,
                                              const StoredTensor& g_idx, int64_t num_groups) {
  const int64_t columns = count(g_idx);
  std::vector<std::vector<int32_t>> members(static_cast<size_t>(num_groups));
  bool in_order = true;
  int32_t previous = 0;
  for (int64_t k = 0; k < columns; ++k) {
    const auto group = read<int32_t>(g_idx, k);
    if (group < 0 || group >= num_groups) {
      return error(ErrorCode::corrupt_data,
                   "{}: tensor {} puts column {} into group {}, expected 0 to {}",
                   checkpoint.path().string(), g_idx.name, k, group, num_groups - 1);
    }
    members[static_cast<size_t>(group)].push_back(static_cast<int32_t>(k));
    in_order = in_order && group >= previous;
    previous = group;
  }
  std::vector<int32_t> order;
  for (const std::vector<int32_t>& group : members) {
    if (static_cast<int64_t>(group.size()) * num_groups != columns) {
      return error(ErrorCode::unsupported,
                   "{}: tensor {} has a group of {} columns, expected {} in each",
                   checkpoint.path().string(), g_idx.name, group.size(), columns / num_groups);
    }
    order.insert(order.end(), group.begin(), group.end());
  }
  if (in_order) order.clear();
  return order;
}

void apply_order(std::span<const int32_t> order, std::vector<uint8_t>& quants) {
  if (order.empty()) return;
  const std::vector<uint8_t> before = quants;
  for (size_t i = 0; i < quants.size(); ++i) quants[i] = before[static_cast<size_t>(order[i])];
}

Expected<const StoredTensor*> require_tensor(const Checkpoint& checkpoint, const std::string& name,
                                             StorageType type, const std::vector<int64_t>& shape) {
  auto tensor = require_shape(checkpoint, name, shape);
  if (!tensor || (*tensor)->type == type) return tensor;
  return error(ErrorCode::unsupported, "{}: tensor {} has type {}, expected {}",
               checkpoint.path().string(), name, traits((*tensor)->type).name, traits(type).name);
}

bool is_left_plain(const Checkpoint& checkpoint, const std::string& module,
                   const std::string& quantized_tensor) {
  return checkpoint.find(module + quantized_tensor) == nullptr &&
         checkpoint.find(module + ".weight") != nullptr;
}

uint32_t word_at(const StoredTensor& tensor, int64_t index) {
  return read<uint32_t>(tensor, index);
}

bool all_words_are(const StoredTensor& tensor, uint32_t word) {
  for (int64_t i = 0; i < count(tensor); ++i) {
    if (word_at(tensor, i) != word) return false;
  }
  return true;
}

}  // namespace tw
