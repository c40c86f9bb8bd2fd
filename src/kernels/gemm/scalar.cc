#include "kernels/gemm/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "kernels/gemm/unpack.h"

namespace tw::kernels::scalar {
namespace {

constexpr int kGroup = 32;

// One group of a panel in the plain order: the quants' factors [k][channel] less their zero point.
struct QuantGroup {
  int16_t quants[kGroup][kTileN];
  // Per half, since q8_k16 has a scale for each; other formats repeat theirs.
  float scales[2][kTileN];
  float minimums[kTileN];
};

void decode_group(const PackedWeight& weight, const std::byte* panel, int64_t k,
                  QuantGroup& group) {
  const WeightFormatTraits t = traits(weight.format());
  const CodebookTable codebook = codebook_table(t.codebook);
  const auto* bytes = reinterpret_cast<const uint8_t*>(panel);
  int zero_points[kTileN];
  for (int c = 0; c < kTileN; ++c) zero_points[c] = zero_point(weight, panel, c, k);
  for (int i = 0; i < kGroup; ++i) {
    for (int c = 0; c < kTileN; ++c) {
      int factor = 0;
      if (t.bits == 4) {
        const uint8_t byte = bytes[nibble_quant_offset(c, k + i)];
        factor = codebook.factors[i >= 16 ? byte >> 4 : byte & 15];
      } else {
        const uint8_t byte = bytes[byte_quant_offset(c, k + i)];
        factor = t.min_quant < 0 ? static_cast<int8_t>(byte) : byte;
      }
      group.quants[i][c] = static_cast<int16_t>(factor - zero_points[c]);
    }
  }
  for (int c = 0; c < kTileN; ++c) {
    const GroupValues first = group_values(weight, panel, c, k);
    group.scales[0][c] = first.scale;
    group.scales[1][c] =
        t.group_size == 16 ? group_values(weight, panel, c, k + 16).scale : first.scale;
    group.minimums[c] = first.minimum;
  }
}

// 16 channels of one row, on their way out.
void finish_row(const GemmArguments& arguments, int64_t m, int64_t panel, const float* acc) {
  const int64_t begin = panel * kTileN;
  const int64_t count = std::min<int64_t>(kTileN, arguments.weight->n() - begin);
  const std::span<const float> output_scales = arguments.weight->output_scales();
  float* c = arguments.c.row(m) + begin;
  for (int64_t i = 0; i < count; ++i) {
    float value = acc[i];
    if (!output_scales.empty()) value *= output_scales[static_cast<size_t>(begin + i)];
    if (arguments.bias != nullptr) value += arguments.bias[begin + i];
    c[i] = arguments.epilogue == Epilogue::accumulate ? c[i] + value : value;
  }
}

// Adds one group's products to a row's sums.
void multiply_group(const QuantGroup& group, int group_size, bool has_minimum, const int8_t* a,
                    const ActivationGroup& a_group, float* acc) {
  for (int begin = 0; begin < kGroup; begin += group_size) {
    int32_t sums[kTileN] = {};
    for (int i = begin; i < begin + group_size; ++i) {
      for (int c = 0; c < kTileN; ++c) sums[c] += group.quants[i][c] * a[i];
    }
    for (int c = 0; c < kTileN; ++c) {
      const float scale = group.scales[begin / 16][c] * a_group.scale;
      acc[c] = std::fma(static_cast<float>(sums[c]), scale, acc[c]);
    }
  }
  if (!has_minimum) return;
  for (int c = 0; c < kTileN; ++c) {
    acc[c] = std::fma(group.minimums[c], a_group.scaled_sum, acc[c]);
  }
}

// fp8 weights before their scale.
void decode_e4m3(const std::byte* panel, int64_t k, float (&out)[kGroup][kTileN]) {
  for (int i = 0; i < kGroup; ++i) {
    for (int c = 0; c < kTileN; ++c) {
      const auto bits = std::to_integer<uint8_t>(panel[byte_quant_offset(c, k + i)]);
      out[i][c] = to_float(f8_e4m3_t{bits});
    }
  }
}

// 32 weights of 16 channels in fp32, [k][channel]; not for fp8.
void decode_f32(const PackedWeight& weight, const std::byte* panel, int64_t k, QuantGroup& group,
                float (&out)[kGroup][kTileN]) {
  if (weight.format() == WeightFormat::bf16) {
    for (int i = 0; i < kGroup; ++i) {
      for (int c = 0; c < kTileN; ++c) {
        bf16_t value;
        std::memcpy(&value, panel + bf16_offset(c, k + i), sizeof(value));
        out[i][c] = to_float(value);
      }
    }
    return;
  }
  decode_group(weight, panel, k, group);
  for (int i = 0; i < kGroup; ++i) {
    for (int c = 0; c < kTileN; ++c) {
      out[i][c] = std::fma(group.scales[i / 16][c], static_cast<float>(group.quants[i][c]),
                           group.minimums[c]);
    }
  }
}

// Each group of a panel is decoded once per block of rows, whose sums wait in memory: decoding
// costs more than multiplying.
constexpr int64_t kRowBlock = 64;
using RowSums = float[kRowBlock][kTileN];

template <typename AddProducts>
void for_each_row_block(const GemmArguments& arguments, Range panels, AddProducts add_products) {
  RowSums sums;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    for (int64_t begin = 0; begin < arguments.a.m; begin += kRowBlock) {
      const Range rows{begin, std::min(begin + kRowBlock, arguments.a.m)};
      std::memset(sums, 0, sizeof(sums));
      add_products(panel, rows, sums);
      for (int64_t m = begin; m < rows.end; ++m) {
        finish_row(arguments, m, panel, sums[m - begin]);
      }
    }
  }
}

void multiply_f32(const float (&weights)[kGroup][kTileN], const float* x, float* acc) {
  for (int i = 0; i < kGroup; ++i) {
    for (int c = 0; c < kTileN; ++c) acc[c] = std::fma(weights[i][c], x[i], acc[c]);
  }
}

const float* f32_row(const PreparedActivations& a, int64_t m) {
  return reinterpret_cast<const float*>(a.values) + m * a.row_stride;
}

// Sums of a group's unscaled products, then one FMA with its scale.
void gemm_fp8_f32(const GemmArguments& arguments, Range panels) {
  const PackedWeight& weight = *arguments.weight;
  constexpr int64_t group_size = traits(WeightFormat::fp8).group_size;
  float weights[kGroup][kTileN];
  RowSums group_sums;
  for_each_row_block(arguments, panels, [&](int64_t panel_index, Range rows, RowSums& sums) {
    const std::byte* panel = weight.panel(panel_index);
    for (int64_t k = 0; k < weight.padded_k(); k += group_size) {
      std::memset(group_sums, 0, sizeof(group_sums));
      for (int64_t i = k; i < k + group_size; i += kGroup) {
        decode_e4m3(panel, i, weights);
        for (int64_t m = rows.begin; m < rows.end; ++m) {
          multiply_f32(weights, f32_row(arguments.a, m) + i, group_sums[m - rows.begin]);
        }
      }
      for (int c = 0; c < kTileN; ++c) {
        const float scale = group_values(weight, panel, c, k).scale;
        for (int64_t r = 0; r < rows.size(); ++r) {
          sums[r][c] = std::fma(group_sums[r][c], scale, sums[r][c]);
        }
      }
    }
  });
}

// 32 activations, or a row of them: `count` values to int8, and what the kernels need to know.
ActivationGroup quantize(const float* x, int64_t count, int8_t* out) {
  // The largest magnitude by its bits: a NaN counts as larger than infinity and so reaches the
  // scale instead of vanishing in a comparison.
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  const float magnitude = std::bit_cast<float>(largest);
  // Below this the quotient would overflow; such values are zero to fp32 sums.
  const bool usable = magnitude >= kSmallestQuantizedMagnitude && std::isfinite(magnitude);
  const float inverse = usable ? 127.0f / magnitude : 0.0f;
  ActivationGroup group{magnitude / 127.0f, 0.0f, 0, 0};
  for (int64_t i = 0; i < count; ++i) {
    const float scaled = usable ? x[i] * inverse : 0.0f;
    const auto quant = static_cast<int32_t>(std::nearbyintf(scaled));
    out[i] = static_cast<int8_t>(quant);
    group.sum += quant;
  }
  group.scaled_sum = group.scale * static_cast<float>(group.sum);
  return group;
}

}  // namespace

void gemm_f32(const GemmArguments& arguments, Range panels) {
  const PackedWeight& weight = *arguments.weight;
  if (weight.format() == WeightFormat::fp8) return gemm_fp8_f32(arguments, panels);
  QuantGroup group;
  float weights[kGroup][kTileN];
  for_each_row_block(arguments, panels, [&](int64_t panel, Range rows, RowSums& sums) {
    for (int64_t k = 0; k < weight.padded_k(); k += kGroup) {
      decode_f32(weight, weight.panel(panel), k, group, weights);
      for (int64_t m = rows.begin; m < rows.end; ++m) {
        multiply_f32(weights, f32_row(arguments.a, m) + k, sums[m - rows.begin]);
      }
    }
  });
}

void gemm_q8(const GemmArguments& arguments, Range panels) {
  const PackedWeight& weight = *arguments.weight;
  const PreparedActivations& a = arguments.a;
  const WeightFormatTraits t = traits(weight.format());
  QuantGroup group;
  for_each_row_block(arguments, panels, [&](int64_t panel, Range rows, RowSums& sums) {
    for (int64_t k = 0; k < weight.padded_k(); k += kGroup) {
      decode_group(weight, weight.panel(panel), k, group);
      for (int64_t m = rows.begin; m < rows.end; ++m) {
        const int8_t* x = reinterpret_cast<const int8_t*>(a.values) + m * a.row_stride + k;
        multiply_group(group, t.group_size, t.has_minimum, x,
                       a.groups[m * a.group_stride + k / kGroup], sums[m - rows.begin]);
      }
    }
  });
}

void gemm_int8(const GemmArguments& arguments, Range panels) {
  const PackedWeight& weight = *arguments.weight;
  const PreparedActivations& a = arguments.a;
  QuantGroup group;
  int32_t exact[kRowBlock][kTileN];
  for_each_row_block(arguments, panels, [&](int64_t panel, Range rows, RowSums& sums) {
    std::memset(exact, 0, sizeof(exact));
    for (int64_t k = 0; k < weight.padded_k(); k += kGroup) {
      decode_group(weight, weight.panel(panel), k, group);
      for (int64_t m = rows.begin; m < rows.end; ++m) {
        const int8_t* x = reinterpret_cast<const int8_t*>(a.values) + m * a.row_stride + k;
        for (int i = 0; i < kGroup; ++i) {
          for (int c = 0; c < kTileN; ++c) exact[m - rows.begin][c] += group.quants[i][c] * x[i];
        }
      }
    }
    for (int64_t m = rows.begin; m < rows.end; ++m) {
      for (int c = 0; c < kTileN; ++c) {
        const auto sum = static_cast<float>(exact[m - rows.begin][c]);
        sums[m - rows.begin][c] = sum * group.scales[0][c] * a.groups[m * a.group_stride].scale;
      }
    }
  });
}

void prepare_f32(Matrix<const float> a, Range rows, const PreparedActivations& out) {
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    float* values = reinterpret_cast<float*>(out.values) + m * out.row_stride;
    std::copy_n(a.row(m), out.k, values);
    std::fill(values + out.k, values + out.row_stride, 0.0f);
  }
}

void prepare_bf16(Matrix<const float> a, Range rows, const PreparedActivations& out) {
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    auto* values = reinterpret_cast<bf16_t*>(out.values) + m * out.row_stride;
    const float* x = a.row(m);
    std::transform(x, x + out.k, values, [](float value) { return to_bf16(value); });
    std::fill(values + out.k, values + out.row_stride, bf16_t{0});
  }
}

void prepare_q8(Matrix<const float> a, Range rows, const PreparedActivations& out) {
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    auto* values = reinterpret_cast<int8_t*>(out.values) + m * out.row_stride;
    std::fill(values, values + out.row_stride, int8_t{0});
    for (int64_t g = 0; g < out.groups_per_row; ++g) {
      const int64_t begin = g * kGroup;
      const int64_t count = std::clamp<int64_t>(out.k - begin, 0, kGroup);
      ActivationGroup group = quantize(a.row(m) + begin, count, values + begin);
      for (int64_t i = 0; i < 16; ++i) group.first_half_sum += values[begin + i];
      out.groups[m * out.group_stride + g] = group;
    }
    ActivationGroup* groups = out.groups + m * out.group_stride;
    std::fill(groups + out.groups_per_row, groups + out.group_stride, ActivationGroup{});
  }
}

void prepare_int8(Matrix<const float> a, Range rows, const PreparedActivations& out) {
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    auto* values = reinterpret_cast<int8_t*>(out.values) + m * out.row_stride;
    ActivationGroup* groups = out.groups + m * out.group_stride;
    groups[0] = quantize(a.row(m), out.k, values);
    std::fill(groups + 1, groups + out.group_stride, ActivationGroup{});
    std::fill(values + out.k, values + out.row_stride, int8_t{0});
  }
}

}  // namespace tw::kernels::scalar
