// The packed weights read back, one element at a time: the definition that packers and kernels are
// tested against.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "kernels/gemm/packed_weight.h"

namespace tw::kernels {

// Scale and minimum of the group that position k of a channel (0..15) of a panel lies in.
struct GroupValues {
  float scale = 1.0f;
  float minimum = 0.0f;
};
GroupValues group_values(const PackedWeight& weight, const std::byte* panel, int channel,
                         int64_t k);

// The zero point at position k of a channel of a panel, the format's or the group's.
int zero_point(const PackedWeight& weight, const std::byte* panel, int channel, int64_t k);

// The stored quant, before codebook and zero point; for fp8 its bits; not for bf16.
int stored_quant(const PackedWeight& weight, const std::byte* panel, int channel, int64_t k);

// Weights of output channel n as fp32: fma(scale, factor - zero_point, minimum), rounded once,
// times the output scale, rounded again. The factor of fp8 is the number that its bits stand for.
void unpack_row(const PackedWeight& weight, int64_t n, float* out /* [k] */);

// A weight with random quants over their whole range and scales such that the weights are about
// 1 in magnitude; for tests and benchmarks. The padding is zero, as a packer leaves it. Formats
// with a codebook get output scales.
Expected<PackedWeight> random_weight(WeightFormat format, int64_t n, int64_t k, uint32_t seed);

}  // namespace tw::kernels
