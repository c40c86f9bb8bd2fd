#include "weights/gguf_rope.h"

#include <cmath>
#include <numbers>

namespace tw {
namespace {

const StoredTensor* find_tensor(std::span<const StoredTensor> tensors, std::string_view name) {
  for (const StoredTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// What Llama 3.1's scaling divides frequency `index` by.
double llama3_divisor(double frequency, double factor, double low, double high, double original) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return factor;
  const double smooth = (original / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
}

// Llama 3.1 and later: converters replace the scaling's parameters by its result, a divisor per
// frequency. The parameters in use are few; the one that gives these divisors is the one.
Expected<Json> llama3_scaling(const StoredTensor& divisors, double theta, int64_t rotary_dim,
                              const std::string& file) {
  const auto count = static_cast<size_t>(divisors.shape.back());
  if (static_cast<int64_t>(count) != rotary_dim / 2 || divisors.type != StorageType::f32) {
    return error(ErrorCode::corrupt_data, "{}: tensor {} has {} {} values, expected {} F32", file,
                 divisors.name, count, traits(divisors.type).name, rotary_dim / 2);
  }
  std::vector<float> stored(count);
  dequantize(divisors.type, divisors.data.data(), divisors.shape.back(), stored.data());
  constexpr double kLow = 1, kHigh = 4, kOriginal = 8192;
  for (const double factor : {8.0, 32.0, 16.0, 4.0, 2.0}) {
    bool equal = true;
    for (size_t i = 0; i < count && equal; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      const double expected = llama3_divisor(frequency, factor, kLow, kHigh, kOriginal);
      equal = std::abs(stored[i] - expected) <= 1e-3 * expected;
    }
    if (equal) {
      return Json{{"rope_type", "llama3"},
                  {"factor", factor},
                  {"low_freq_factor", kLow},
                  {"high_freq_factor", kHigh},
                  {"original_max_position_embeddings", static_cast<int64_t>(kOriginal)}};
    }
  }
  return error(
      ErrorCode::unsupported,
      "{}: tensor {} holds frequency divisors of no known scaling (Llama 3.1's with factor "
      "2 to 32)",
      file, divisors.name);
}

// Phi 3 has the divisors of both lengths as tensors, and the scaling of the scores as metadata.
Expected<Json> longrope_scaling(const GgufModel& model, const StoredTensor& short_factors,
                                const StoredTensor& long_factors) {
  Json scaling = {{"rope_type", "longrope"}};
  for (const auto& [field, tensor] :
       {std::pair{"short_factor", &short_factors}, std::pair{"long_factor", &long_factors}}) {
    if (tensor->type != StorageType::f32 || tensor->shape.size() != 1) {
      return error(ErrorCode::corrupt_data, "{}: tensor {} is {}, expected a vector of F32",
                   model.gguf.file().path().string(), tensor->name, traits(tensor->type).name);
    }
    std::vector<float> factors(static_cast<size_t>(tensor->shape[0]));
    dequantize(tensor->type, tensor->data.data(), tensor->shape[0], factors.data());
    scaling[field] = factors;
  }
  const std::string prefix = model.prefix + "rope.scaling.";
  if (const auto original = model.gguf.integer(prefix + "original_context_length")) {
    scaling["original_max_position_embeddings"] = *original;
  }
  if (const auto factor = model.gguf.number(prefix + "attn_factor")) {
    scaling["attention_factor"] = *factor;
  }
  return scaling;
}

// rope.scaling.* of the metadata, or nothing.
Json metadata_scaling(const GgufFile& gguf, const std::string& prefix) {
  const auto type = gguf.string(prefix + "rope.scaling.type");
  const auto factor = gguf.number(prefix + "rope.scaling.factor");
  if (!type || *type == "none" || !factor) return nullptr;
  Json scaling = {{"rope_type", std::string(*type)}, {"factor", *factor}};
  if (const auto original = gguf.integer(prefix + "rope.scaling.original_context_length")) {
    scaling["original_max_position_embeddings"] = *original;
  }
  return scaling;
}

}  // namespace

Expected<Json> gguf_rope_scaling(const GgufModel& model, double theta, int64_t head_dim) {
  const GgufFile& gguf = model.gguf;
  const StoredTensor* short_factors = find_tensor(model.tensors, "rope_factors_short.weight");
  const StoredTensor* long_factors = find_tensor(model.tensors, "rope_factors_long.weight");
  if (short_factors != nullptr && long_factors != nullptr) {
    return longrope_scaling(model, *short_factors, *long_factors);
  }
  if (const StoredTensor* divisors = find_tensor(model.tensors, "rope_freqs.weight")) {
    const int64_t rotary_dim =
        gguf.integer(model.prefix + "rope.dimension_count").value_or(head_dim);
    return llama3_scaling(*divisors, theta, rotary_dim, gguf.file().path().string());
  }
  return metadata_scaling(gguf, model.prefix);
}

}  // namespace tw
