#include "kernels/gemm/unpack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "core/dtype.h"

namespace tw::kernels {
namespace {

template <typename T>
T load(const std::byte* panel, int64_t base, int64_t index) {
  T value;
  std::memcpy(&value, panel + base + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* panel, int64_t base, int64_t index, T value) {
  std::memcpy(panel + base + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

float nested_value(const WeightFormatTraits& t, const std::byte* panel, int64_t multipliers,
                   int64_t super_values, int channel, int64_t k) {
  const int64_t index = k / t.group_size * kTileN + channel;
  const int multiplier = t.signed_multipliers ? int{load<int8_t>(panel, multipliers, index)}
                                              : int{load<uint8_t>(panel, multipliers, index)};
  const f16_t super = load<f16_t>(panel, super_values, k / kSuperGroup * kTileN + channel);
  return static_cast<float>(multiplier) * to_float(super);
}

}  // namespace

GroupValues group_values(const PackedWeight& weight, const std::byte* panel, int channel,
                         int64_t k) {
  const WeightFormatTraits t = traits(weight.format());
  const PanelLayout& layout = weight.layout();
  GroupValues values;
  if (t.scale_kind == ScaleKind::f32) {
    values.scale = load<float>(panel, layout.scales, group_of(t, k) * kTileN + channel);
  } else if (t.scale_kind == ScaleKind::f16) {
    const int64_t index = k / t.group_size * kTileN + channel;
    values.scale = to_float(load<f16_t>(panel, layout.scales, index));
    if (t.has_minimum) values.minimum = to_float(load<f16_t>(panel, layout.minimums, index));
  } else if (t.scale_kind == ScaleKind::nested) {
    values.scale = nested_value(t, panel, layout.scales, layout.super_scales, channel, k);
    if (t.has_minimum) {
      values.minimum = nested_value(t, panel, layout.minimums, layout.super_minimums, channel, k);
    }
  }
  return values;
}

int zero_point(const PackedWeight& weight, const std::byte* panel, int channel, int64_t k) {
  const WeightFormatTraits t = traits(weight.format());
  if (!t.has_zero_points) return t.zero_point;
  return load<uint8_t>(panel, weight.layout().zero_points, k / t.group_size * kTileN + channel);
}

int stored_quant(const PackedWeight& weight, const std::byte* panel, int channel, int64_t k) {
  const WeightFormatTraits t = traits(weight.format());
  if (t.bits == 4) {
    const auto byte = load<uint8_t>(panel, nibble_quant_offset(channel, k), 0);
    return is_high_nibble(k) ? byte >> 4 : byte & 15;
  }
  const int64_t offset = byte_quant_offset(channel, k);
  const bool is_signed = t.min_quant < 0 && t.quant_kind == QuantKind::integer;
  return is_signed ? int{load<int8_t>(panel, offset, 0)} : int{load<uint8_t>(panel, offset, 0)};
}

void unpack_row(const PackedWeight& weight, int64_t n, float* out) {
  const WeightFormatTraits t = traits(weight.format());
  const std::byte* panel = weight.panel(n / kTileN);
  const int channel = static_cast<int>(n % kTileN);
  const CodebookTable codebook = codebook_table(t.codebook);
  const auto scales = weight.output_scales();
  const float output_scale = scales.empty() ? 1.0f : scales[static_cast<size_t>(n)];
  for (int64_t k = 0; k < weight.k(); ++k) {
    if (weight.format() == WeightFormat::bf16) {
      out[k] = to_float(load<bf16_t>(panel, bf16_offset(channel, k), 0)) * output_scale;
      continue;
    }
    const GroupValues group = group_values(weight, panel, channel, k);
    const int quant = stored_quant(weight, panel, channel, k);
    float factor = static_cast<float>(quant - zero_point(weight, panel, channel, k));
    if (t.codebook != Codebook::none) {
      factor = static_cast<float>(codebook.factors[quant] - t.zero_point);
    } else if (t.quant_kind == QuantKind::e4m3) {
      factor = to_float(f8_e4m3_t{static_cast<uint8_t>(quant)});
    }
    out[k] = std::fma(group.scale, factor, group.minimum) * output_scale;
  }
}

Expected<PackedWeight> random_weight(WeightFormat format, int64_t n, int64_t k, uint32_t seed) {
  auto weight = PackedWeight::allocate(format, n, k);
  if (!weight) return weight;
  const WeightFormatTraits t = traits(format);
  const PanelLayout& layout = weight->layout();
  std::minstd_rand random(seed + 1);
  const auto uniform = [&random](int low, int high) {
    return low + static_cast<int>(random() >> 8) % (high - low + 1);
  };
  // Quant times scale lies within about [-1, 1] whatever the format.
  const float unit = 1.0f / static_cast<float>(std::max(t.max_quant, 1));
  const auto random_scale = [&](float magnitude) {
    return magnitude * (0.5f + static_cast<float>(uniform(0, 1000)) / 1000.0f);
  };
  // Half of the bit patterns of e4m3 are tiny; its scales make up for it.
  const float f32_unit = t.quant_kind == QuantKind::e4m3 ? 2.0f * unit : unit;

  for (int64_t channel = 0; channel < n; ++channel) {
    std::byte* panel = weight->panel(channel / kTileN);
    const int c = static_cast<int>(channel % kTileN);
    for (int64_t i = 0; i < k; ++i) {
      if (format == WeightFormat::bf16) {
        const float value = static_cast<float>(uniform(-4000, 4000)) / 4000.0f;
        store(panel, bf16_offset(c, i), 0, to_bf16(value));
        continue;
      }
      const int quant = t.quant_kind == QuantKind::e4m3 ? uniform(0, 1) * 0x80 + uniform(0, 0x7e)
                                                        : uniform(t.min_quant, t.max_quant);
      if (t.bits == 8) {
        store(panel, byte_quant_offset(c, i), 0, static_cast<uint8_t>(quant));
      } else {
        auto byte = load<uint8_t>(panel, nibble_quant_offset(c, i), 0);
        byte = static_cast<uint8_t>(byte | (is_high_nibble(i) ? quant << 4 : quant));
        store(panel, nibble_quant_offset(c, i), 0, byte);
      }
    }
    if (t.scale_kind == ScaleKind::none) continue;
    for (int64_t group = 0; group <= group_of(t, k - 1); ++group) {
      const int64_t index = group * kTileN + c;
      if (t.scale_kind == ScaleKind::f32) {
        store(panel, layout.scales, index, random_scale(f32_unit));
      } else if (t.scale_kind == ScaleKind::f16) {
        store(panel, layout.scales, index, to_f16(random_scale(unit)));
        if (t.has_minimum) store(panel, layout.minimums, index, to_f16(random_scale(-0.5f)));
        if (t.has_zero_points) {
          store(panel, layout.zero_points, index, static_cast<uint8_t>(uniform(0, 16)));
        }
      } else {
        const int low = t.signed_multipliers ? -128 : 0;
        const int high = t.signed_multipliers ? 127 : 63;
        store(panel, layout.scales, index, static_cast<uint8_t>(uniform(low, high)));
        if (t.has_minimum) {
          store(panel, layout.minimums, index, static_cast<uint8_t>(uniform(0, 63)));
        }
      }
    }
    if (t.scale_kind != ScaleKind::nested) continue;
    for (int64_t i = 0; i < k; i += kSuperGroup) {
      const int64_t index = i / kSuperGroup * kTileN + c;
      store(panel, layout.super_scales, index, to_f16(random_scale(unit / 32.0f)));
      if (t.has_minimum) {
        store(panel, layout.super_minimums, index, to_f16(random_scale(-0.5f / 32.0f)));
      }
    }
  }
  if (t.codebook != Codebook::none) {
    std::vector<float> output_scales(static_cast<size_t>(n));
    for (float& scale : output_scales) scale = static_cast<float>(uniform(500, 2000)) / 1000.0f;
    weight->set_output_scales(output_scales);
  }
  return weight;
}

}  // namespace tw::kernels
