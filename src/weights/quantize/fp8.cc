// FP8: e4m3 with a bf16 scale for each output channel, compressed-tensors' "float-quantized"
// (weights/schemes/scaled_bytes.h).
#include "weights/quantize/quantizer.h"
#include "weights/quantize/rounding.h"

namespace tw {
namespace {

constexpr float kLargestE4m3 = 448.0f;

class Fp8Quantizer final : public Quantizer {
 public:
  Json config() const override {
    return compressed_tensors_config("float-quantized",
                                     {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}},
                                     {{"num_bits", 8},
                                      {"type", "float"},
                                      {"strategy", "token"},
                                      {"dynamic", true},
                                      {"symmetric", true}});
  }

  std::vector<QuantizedTensor> tensors(int64_t rows, int64_t columns, float) const override {
    return {{"weight", StorageType::f8_e4m3, {rows, columns}, {}},
            {"weight_scale", StorageType::bf16, {rows, 1}, {}}};
  }

  void quantize_row(std::span<const float> weights, float, std::byte* quants,
                    std::byte* scales) const override {
    const float scale = round_to_bf16(largest_magnitude(weights) / kLargestE4m3);
    store_at(scales, 0, to_bf16(scale));
    for (size_t k = 0; k < weights.size(); ++k) {
      const float value = scale == 0 ? 0 : weights[k] / scale;
      quants[k] = static_cast<std::byte>(to_f8_e4m3(value).bits);
    }
  }
};

}  // namespace

std::unique_ptr<const Quantizer> make_fp8_quantizer() {
  return std::make_unique<Fp8Quantizer>();
}

}  // namespace tw
