#include "kernels/rope/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tw::kernels {
namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;

// theta^(2i / dim) for i in [0, dim / 2): fp32 exponents, as in the reference.
std::vector<float> positional_frequencies(double theta, int32_t dim) {
  std::vector<float> frequencies;
  for (int32_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    frequencies.push_back(static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return frequencies;
}

std::vector<float> inverted(std::vector<float> frequencies) {
  for (float& frequency : frequencies) frequency = 1.0f / frequency;
  return frequencies;
}

RopeFrequencies llama3_frequencies(const RopeParameters& p, int64_t original) {
  RopeFrequencies result{inverted(positional_frequencies(p.theta, p.rotary_dim()))};
  const auto length = static_cast<double>(original);
  const double longest = length / p.low_freq_factor;    // wavelengths above are divided
  const double shortest = length / p.high_freq_factor;  // wavelengths below are kept
  for (float& inverse : result.inverse) {
    const double wavelength = 2.0 * std::numbers::pi / inverse;
    if (wavelength <= shortest) continue;
    const float divided = inverse / p.factor;
    if (wavelength > longest) {
      inverse = divided;
      continue;
    }
    const auto smooth = static_cast<float>((length / wavelength - p.low_freq_factor) /
                                           (double{p.high_freq_factor} - p.low_freq_factor));
    inverse = (1.0f - smooth) * divided + smooth * inverse;
  }
  return result;
}

double yarn_mscale(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

float yarn_attention_scaling(const RopeParameters& p) {
  if (p.attention_factor) return *p.attention_factor;
  const float mscale = p.mscale.value_or(0.0f);
  const float mscale_all_dim = p.mscale_all_dim.value_or(0.0f);
  if (mscale != 0.0f && mscale_all_dim != 0.0f) {
    return static_cast<float>(yarn_mscale(p.factor, mscale) /
                              yarn_mscale(p.factor, mscale_all_dim));
  }
  return static_cast<float>(yarn_mscale(p.factor, 1.0));
}

RopeFrequencies yarn_frequencies(const RopeParameters& p, int64_t original) {
  const int32_t dim = p.rotary_dim();
  // The dimension whose wavelength makes `rotations` turns over the original context.
  const auto border = [&](double rotations) {
    const double length = static_cast<double>(original);
    return dim * std::log(length / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(double{p.theta}));
  };
  double low = border(p.beta_fast);
  double high = border(p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;

  const std::vector<float> frequencies = positional_frequencies(p.theta, dim);
  RopeFrequencies result;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto ramp = static_cast<float>((static_cast<double>(i) - low) / (high - low));
    const float extrapolated_share = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float interpolated = 1.0f / (p.factor * frequencies[i]);
    const float extrapolated = 1.0f / frequencies[i];
    result.inverse.push_back(interpolated * (1.0f - extrapolated_share) +
                             extrapolated * extrapolated_share);
  }
  result.attention_scaling = yarn_attention_scaling(p);
  return result;
}

RopeFrequencies longrope_frequencies(const RopeParameters& p, int64_t original) {
  const int64_t length = p.sequence_length > 0 ? p.sequence_length : p.max_position_embeddings;
  const std::vector<float>& divisors = length > original ? p.long_factor : p.short_factor;
  RopeFrequencies result{positional_frequencies(p.theta, p.rotary_dim())};
  for (size_t i = 0; i < result.inverse.size(); ++i) {
    result.inverse[i] = 1.0f / (divisors[i] * result.inverse[i]);
  }
  if (p.attention_factor) {
    result.attention_scaling = *p.attention_factor;
  } else if (p.factor > 1.0f) {
    const double growth = std::log(double{p.factor}) / std::log(static_cast<double>(original));
    result.attention_scaling = static_cast<float>(std::sqrt(1.0 + growth));
  }
  return result;
}

Status validate(const RopeParameters& p) {
  if (p.head_dim <= 0)
    return error(kInvalid, "rope: head_dim is {}; it must be positive", p.head_dim);
  if (!(p.partial_rotary_factor > 0.0f && p.partial_rotary_factor <= 1.0f)) {
    return error(kInvalid, "rope: partial_rotary_factor is {}; it must be above 0 and at most 1",
                 p.partial_rotary_factor);
  }
  if (p.rotary_dim() < 2) {
    return error(kInvalid, "rope: head_dim {} with partial_rotary_factor {} rotates nothing",
                 p.head_dim, p.partial_rotary_factor);
  }
  if (!(p.theta > 0.0f && std::isfinite(p.theta)) ||
      (p.type == RopeType::yarn && p.theta == 1.0f)) {
    return error(kInvalid, "rope: rope_theta is {}; it must be positive (yarn: not 1)", p.theta);
  }
  if (p.max_position_embeddings <= 0 || p.original_max_position_embeddings < 0 ||
      p.sequence_length < 0) {
    return error(kInvalid, "rope: lengths ({}, original {}, served {}) must be positive",
                 p.max_position_embeddings, p.original_max_position_embeddings, p.sequence_length);
  }
  if (p.type != RopeType::standard && !(p.factor >= 1.0f && std::isfinite(p.factor))) {
    return error(kInvalid, "rope: factor is {}; it must be at least 1", p.factor);
  }
  if (p.type == RopeType::llama3 &&
      !(p.low_freq_factor > 0.0f && p.high_freq_factor >= p.low_freq_factor)) {
    return error(kInvalid,
                 "rope: low_freq_factor {} and high_freq_factor {} must be positive, the first not "
                 "the larger one",
                 p.low_freq_factor, p.high_freq_factor);
  }
  if (p.type == RopeType::yarn && !(p.beta_slow > 0.0f && p.beta_fast > p.beta_slow)) {
    return error(kInvalid, "rope: beta_slow {} and beta_fast {} must be positive and ascending",
                 p.beta_slow, p.beta_fast);
  }
  const auto num_frequencies = static_cast<size_t>(p.rotary_dim()) / 2;
  if (p.type == RopeType::longrope &&
      (p.short_factor.size() != num_frequencies || p.long_factor.size() != num_frequencies)) {
    return error(kInvalid, "rope: short_factor has {} and long_factor {} values; expected {} each",
                 p.short_factor.size(), p.long_factor.size(), num_frequencies);
  }
  return {};
}

}  // namespace

int32_t RopeParameters::rotary_dim() const {
  return static_cast<int32_t>(static_cast<float>(head_dim) * partial_rotary_factor) / 2 * 2;
}

Expected<RopeFrequencies> rope_frequencies(const RopeParameters& p) {
  if (auto valid = validate(p); !valid) return forward_error(valid);
  const int64_t original = p.original_max_position_embeddings > 0
                               ? p.original_max_position_embeddings
                               : p.max_position_embeddings;
  const int32_t dim = p.rotary_dim();
  switch (p.type) {
    case RopeType::standard:
      return RopeFrequencies{inverted(positional_frequencies(p.theta, dim))};
    case RopeType::linear: {
      RopeFrequencies result{inverted(positional_frequencies(p.theta, dim))};
      for (float& inverse : result.inverse) inverse /= p.factor;
      return result;
    }
    case RopeType::dynamic_ntk: {
      const auto trained = static_cast<double>(p.max_position_embeddings);
      const double length = std::max(static_cast<double>(p.sequence_length), trained);
      const double growth = p.factor * length / trained - (double{p.factor} - 1.0);
      const double theta = p.theta * (dim > 2 ? std::pow(growth, dim / (dim - 2.0)) : 1.0);
      return RopeFrequencies{inverted(positional_frequencies(theta, dim))};
    }
    case RopeType::llama3:
      return llama3_frequencies(p, original);
    case RopeType::yarn:
      return yarn_frequencies(p, original);
    case RopeType::longrope:
      return longrope_frequencies(p, original);
  }
  return error(ErrorCode::unsupported, "rope: unknown type {}", static_cast<int>(p.type));
}

Expected<RopeTable> RopeTable::build(const RopeParameters& parameters, int64_t max_positions) {
  auto frequencies = rope_frequencies(parameters);
  if (!frequencies) return forward_error(frequencies);
  if (max_positions <= 0) {
    return error(kInvalid, "rope: a table of {} positions; at least 1 is needed", max_positions);
  }
  RopeTable table;
  table.rotary_dim_ = parameters.rotary_dim();
  table.max_positions_ = max_positions;
  const size_t size = static_cast<size_t>(max_positions) * frequencies->inverse.size();
  table.cos_.reserve(size);
  table.sin_.reserve(size);
  for (int64_t position = 0; position < max_positions; ++position) {
    for (const float inverse : frequencies->inverse) {
      // The angle is rounded to fp32 as in the reference; cos and sin of it are exact to rounding.
      const float angle = static_cast<float>(position) * inverse;
      const double scaling = frequencies->attention_scaling;
      table.cos_.push_back(static_cast<float>(std::cos(static_cast<double>(angle)) * scaling));
      table.sin_.push_back(static_cast<float>(std::sin(static_cast<double>(angle)) * scaling));
    }
  }
  return table;
}

}  // namespace tw::kernels
