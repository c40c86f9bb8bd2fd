// MXFP4: groups of 32 e2m1 floats with a power of two each, compressed-tensors'
// "mxfp4-pack-quantized" (weights/schemes/fp4.h); OCP Microscaling Formats, version 1.0.
//
// The specification takes the exponent at which the largest weight lies in e2m1's last binade, 4 to
// 8, of which what is above 6 is cut off. Here the next larger one is tried too, and the better of
// the two is taken.
#include "weights/quantize/quantizer.h"
#include "weights/quantize/rounding.h"

namespace tw {
namespace {

constexpr size_t kGroupSize = 32;
constexpr int kBias = 127;
constexpr int kLargestE2m1Exponent = 2;  // of 4 and 6

int best_exponent(std::span<const float> group) {
  const float largest = largest_magnitude(group);
  if (largest == 0) return -kBias;
  // A scale must be a normal float, as its inverse.
  const int first = std::clamp(std::ilogb(largest) - kLargestE2m1Exponent, -125, 125);
  const auto error = [group](int exponent) {
    return squared_error(group, std::ldexp(1.0f, exponent), round_to_e2m1);
  };
  return error(first + 1) < error(first) ? first + 1 : first;
}

class Mxfp4Quantizer final : public Quantizer {
 public:
  Json config() const override {
    return compressed_tensors_config("mxfp4-pack-quantized",
                                     {{"num_bits", 4},
                                      {"type", "float"},
                                      {"strategy", "group"},
                                      {"group_size", kGroupSize},
                                      {"scale_dtype", "torch.uint8"},
                                      {"zp_dtype", "torch.uint8"}},
                                     nullptr);
  }

  int64_t column_multiple() const override { return kGroupSize; }

  std::vector<QuantizedTensor> tensors(int64_t rows, int64_t columns, float) const override {
    return {{"weight_packed", StorageType::u8, {rows, columns / 2}, {}},
            {"weight_scale", StorageType::u8, {rows, columns / int64_t{kGroupSize}}, {}}};
  }

  void quantize_row(std::span<const float> weights, float, std::byte* quants,
                    std::byte* scales) const override {
    for (size_t begin = 0; begin < weights.size(); begin += kGroupSize) {
      const auto group = weights.subspan(begin, kGroupSize);
      const int exponent = best_exponent(group);
      *scales++ = static_cast<std::byte>(exponent + kBias);
      const float scale = std::ldexp(1.0f, exponent);
      for (size_t i = 0; i < kGroupSize; i += 2) {
        const uint8_t low = e2m1_bits(round_to_e2m1(group[i] / scale));
        const uint8_t high = e2m1_bits(round_to_e2m1(group[i + 1] / scale));
        *quants++ = static_cast<std::byte>(low | high << 4);
      }
    }
  }
};

}  // namespace

std::unique_ptr<const Quantizer> make_mxfp4_quantizer() {
  return std::make_unique<Mxfp4Quantizer>();
}

}  // namespace tw
