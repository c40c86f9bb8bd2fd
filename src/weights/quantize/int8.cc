// W8A8 INT8: a bf16 scale for each output channel, compressed-tensors' "int-quantized"
// (weights/schemes/scaled_bytes.h). Activations are quantized per token as they come.
#include "weights/quantize/quantizer.h"
#include "weights/quantize/rounding.h"

namespace tw {
namespace {

class Int8Quantizer final : public Quantizer {
 public:
  Json config() const override {
    return compressed_tensors_config("int-quantized",
                                     {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}},
                                     {{"num_bits", 8},
                                      {"type", "int"},
                                      {"strategy", "token"},
                                      {"dynamic", true},
                                      {"symmetric", true}});
  }

  std::vector<QuantizedTensor> tensors(int64_t rows, int64_t columns, float) const override {
    return {{"weight", StorageType::i8, {rows, columns}, {}},
            {"weight_scale", StorageType::bf16, {rows, 1}, {}}};
  }

  void quantize_row(std::span<const float> weights, float, std::byte* quants,
                    std::byte* scales) const override {
    // Half the range from -128 to 127: compressed-tensors' definition.
    const float scale = round_to_bf16(largest_magnitude(weights) / 127.5f);
    store_at(scales, 0, to_bf16(scale));
    for (size_t k = 0; k < weights.size(); ++k) {
      const float value = scale == 0 ? 0 : weights[k] / scale;
      const float quant = round_to_integer(lesser(greater(value, -128.0f), 127.0f));
      quants[k] = static_cast<std::byte>(static_cast<int>(quant));
    }
  }
};

}  // namespace

std::unique_ptr<const Quantizer> make_int8_quantizer() {
  return std::make_unique<Int8Quantizer>();
}

}  // namespace tw
