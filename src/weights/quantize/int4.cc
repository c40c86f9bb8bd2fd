// INT4: groups of 4-bit integers along K with a bf16 scale each, compressed-tensors'
// "pack-quantized" (weights/schemes/pack_quantized.h).
//
// -8 to 7 is one more on the negative side. The scale that loses least is searched for, of either
// sign: a negative one gives the place of -8 to a positive extreme.
#include "weights/quantize/quantizer.h"
#include "weights/quantize/rounding.h"

namespace tw {
namespace {

constexpr int kQuantsPerWord = 8;

float round_to_int4(float value) {
  return round_to_integer(lesser(greater(value, -8.0f), 7.0f));
}

// What the weight of largest magnitude may become: about the ends of the range, and beyond, where
// it is cut off, which the others may be worth.
constexpr float kExtremes[] = {-9.0f, -8.5f, -8.0f, -7.5f, -7.0f, 6.0f, 6.5f, 7.0f, 7.5f, 8.0f};

float best_scale(std::span<const float> group) {
  float extreme = 0;
  for (const float weight : group) {
    if (std::abs(weight) > std::abs(extreme)) extreme = weight;
  }
  float best = 0;
  float least = INFINITY;
  for (const float place : kExtremes) {
    const float scale = round_to_bf16(extreme / place);
    if (scale == 0) continue;
    const float error = squared_error(group, scale, round_to_int4);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

class Int4Quantizer final : public Quantizer {
 public:
  explicit Int4Quantizer(int64_t group_size) : group_size_(group_size) {}

  Json config() const override {
    return compressed_tensors_config(
        "pack-quantized",
        {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", group_size_}},
        nullptr);
  }

  int64_t column_multiple() const override { return group_size_; }

  std::vector<QuantizedTensor> tensors(int64_t rows, int64_t columns, float) const override {
    std::vector<std::byte> shape(2 * sizeof(int64_t));
    store_at(shape.data(), 0, rows);
    store_at(shape.data(), 1, columns);
    return {{"weight_packed", StorageType::i32, {rows, columns / kQuantsPerWord}, {}},
            {"weight_scale", StorageType::bf16, {rows, columns / group_size_}, {}},
            {"weight_shape", StorageType::i64, {2}, std::move(shape)}};
  }

  void quantize_row(std::span<const float> weights, float, std::byte* quants,
                    std::byte* scales) const override {
    const auto group_size = static_cast<size_t>(group_size_);
    int64_t word_index = 0;
    for (size_t begin = 0; begin < weights.size(); begin += group_size) {
      const auto group = weights.subspan(begin, group_size);
      const float scale = best_scale(group);
      store_at(scales, static_cast<int64_t>(begin / group_size), to_bf16(scale));
      for (size_t i = 0; i < group_size; i += kQuantsPerWord) {
        uint32_t word = 0;
        for (size_t j = 0; j < kQuantsPerWord; ++j) {
          const float quant = scale == 0 ? 0 : round_to_int4(group[i + j] / scale);
          word |= static_cast<uint32_t>(static_cast<int>(quant) + 8) << (4 * j);
        }
        store_at(quants, word_index++, word);
      }
    }
  }

 private:
  int64_t group_size_;
};

}  // namespace

Expected<std::unique_ptr<const Quantizer>> make_int4_quantizer(int64_t group_size) {
  if (group_size > 0 && group_size % 32 == 0 && group_size <= 1024) {
    return std::make_unique<Int4Quantizer>(group_size);
  }
  return error(ErrorCode::invalid_argument, "--group-size {}: use a multiple of 32 up to 1024",
               group_size);
}

}  // namespace tw
