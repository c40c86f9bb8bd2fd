// NVFP4: groups of 16 e2m1 floats with an e4m3 scale each, and one f32 scale for the tensor,
// compressed-tensors' "nvfp4-pack-quantized" (weights/schemes/fp4.h).
//
// The tensor's scale brings the largest group scale to e4m3's end. The scale of a group puts its
// largest weight at 6, e2m1's end, or near one of the other numbers of its last binades, where the
// rest may fit better; the least squared error decides.
#include "weights/quantize/quantizer.h"
#include "weights/quantize/rounding.h"

namespace tw {
namespace {

constexpr size_t kGroupSize = 16;
constexpr float kLargestE2m1 = 6.0f;
constexpr float kLargestE4m3 = 448.0f;

// What group scales are multiplied by before they are stored.
float global_scale_of(float largest) {
  const float scale = kLargestE4m3 * kLargestE2m1 / std::max(largest, 0x1p-126f);
  return std::isfinite(scale) ? scale : 1.0f;
}

class Nvfp4Quantizer final : public Quantizer {
 public:
  Json config() const override {
    return compressed_tensors_config("nvfp4-pack-quantized",
                                     {{"num_bits", 4},
                                      {"type", "float"},
                                      {"strategy", "tensor_group"},
                                      {"group_size", kGroupSize},
                                      {"scale_dtype", "torch.float8_e4m3fn"},
                                      {"zp_dtype", "torch.float8_e4m3fn"}},
                                     nullptr);
  }

  int64_t column_multiple() const override { return kGroupSize; }
  bool needs_largest_magnitude() const override { return true; }

  std::vector<QuantizedTensor> tensors(int64_t rows, int64_t columns,
                                       float largest) const override {
    std::vector<std::byte> global_scale(sizeof(float));
    store_at(global_scale.data(), 0, global_scale_of(largest));
    return {{"weight_packed", StorageType::u8, {rows, columns / 2}, {}},
            {"weight_scale", StorageType::f8_e4m3, {rows, columns / int64_t{kGroupSize}}, {}},
            {"weight_global_scale", StorageType::f32, {1}, std::move(global_scale)}};
  }

  void quantize_row(std::span<const float> weights, float largest, std::byte* quants,
                    std::byte* scales) const override {
    const float global_scale = global_scale_of(largest);
    for (size_t begin = 0; begin < weights.size(); begin += kGroupSize) {
      const auto group = weights.subspan(begin, kGroupSize);
      const f8_e4m3_t stored = best_scale(group, global_scale);
      *scales++ = static_cast<std::byte>(stored.bits);
      const float scale = to_float(stored) / global_scale;
      const auto quant = [&](size_t i) {
        return scale == 0 ? 0 : e2m1_bits(round_to_e2m1(group[i] / scale));
      };
      for (size_t i = 0; i < kGroupSize; i += 2) {
        *quants++ = static_cast<std::byte>(quant(i) | quant(i + 1) << 4);
      }
    }
  }

 private:
  static f8_e4m3_t best_scale(std::span<const float> group, float global_scale) {
    const float largest = largest_magnitude(group);
    f8_e4m3_t best = {0};
    float least = INFINITY;
    for (const float place : {4.0f, 4.5f, 5.5f, 6.0f, 6.5f, 7.0f}) {
      const f8_e4m3_t stored = to_f8_e4m3(largest / place * global_scale);
      const float scale = to_float(stored) / global_scale;
      if (scale == 0) continue;
      const float error = squared_error(group, scale, round_to_e2m1);
      if (error < least) {
        least = error;
        best = stored;
      }
    }
    return best;
  }
};

}  // namespace

std::unique_ptr<const Quantizer> make_nvfp4_quantizer() {
  return std::make_unique<Nvfp4Quantizer>();
}

}  // namespace tw
