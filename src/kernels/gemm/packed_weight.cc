#include "kernels/gemm/packed_weight.h"

#include <limits>

#include "core/check.h"

namespace tw::kernels {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Far above any model's matrices, and low enough that no byte count below overflows int64.
constexpr int64_t kMaxExtent = int64_t{1} << 30;
constexpr int64_t kMaxBytes = int64_t{1} << 46;

int64_t scale_bytes(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::none:
      return 0;
    case ScaleKind::f16:
      return 2;
    case ScaleKind::f32:
      return 4;
    case ScaleKind::nested:
      return 1;
  }
  return 0;
}

}  // namespace

PanelLayout panel_layout(WeightFormat format, int64_t padded_k) {
  const WeightFormatTraits t = traits(format);
  PanelLayout layout;
  int64_t offset = padded_k * kTileN * t.bits / 8;
  const auto reserve = [&offset](int64_t bytes) {
    const int64_t begin = offset;
    offset = round_up(offset + bytes, 64);
    return begin;
  };
  const auto reserve_group_values = [&](int64_t& values, int64_t& super_values) {
    values = reserve(num_groups(t, padded_k) * kTileN * scale_bytes(t.scale_kind));
    if (t.scale_kind == ScaleKind::nested) {
      super_values = reserve(padded_k / kSuperGroup * kTileN * 2);
    }
  };
  if (t.scale_kind != ScaleKind::none) {
    reserve_group_values(layout.scales, layout.super_scales);
    if (t.has_minimum) reserve_group_values(layout.minimums, layout.super_minimums);
  }
  if (t.has_zero_points) layout.zero_points = reserve(padded_k / t.group_size * kTileN);
  layout.size = round_up(offset, 64);
  return layout;
}

Expected<PackedWeight> PackedWeight::describe(WeightFormat format, int64_t n, int64_t k) {
  if (n <= 0 || k <= 0 || n > kMaxExtent || k > kMaxExtent) {
    return error(ErrorCode::invalid_argument,
                 "weight matrix [{}, {}] in {}: both extents must lie between 1 and {}", n, k,
                 traits(format).name, kMaxExtent);
  }
  if (format == WeightFormat::int8 && k > kMaxInt8Depth) {
    return error(ErrorCode::invalid_argument,
                 "weight matrix [{}, {}] in {}: at most {} columns, or their sums would overflow",
                 n, k, traits(format).name, kMaxInt8Depth);
  }
  PackedWeight weight;
  weight.format_ = format;
  weight.n_ = n;
  weight.k_ = k;
  weight.padded_k_ = round_up(k, traits(format).k_alignment);
  weight.layout_ = panel_layout(format, weight.padded_k_);
  if (weight.layout_.size > kMaxBytes / weight.num_panels()) {
    return error(ErrorCode::invalid_argument, "weight matrix [{}, {}] in {}: larger than {} bytes",
                 n, k, traits(format).name, kMaxBytes);
  }
  return weight;
}

Expected<PackedWeight> PackedWeight::allocate(WeightFormat format, int64_t n, int64_t k) {
  auto weight = describe(format, n, k);
  if (!weight) return weight;
  auto data = Buffer::allocate(weight->size_bytes());
  if (!data) return forward_error(data);
  weight->data_ = std::move(*data);
  weight->place(weight->data_.data());
  return weight;
}

void PackedWeight::set_output_scales(std::span<const float> scales) {
  TW_CHECK(scales.empty() || static_cast<int64_t>(scales.size()) == n_);
  output_scales_.assign(scales.begin(), scales.end());
  if (!scales.empty()) output_scales_.resize(static_cast<size_t>(num_panels() * kTileN), 0.0f);
}

}  // namespace tw::kernels
