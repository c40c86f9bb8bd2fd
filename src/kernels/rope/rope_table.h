// Rotary position embedding (Su et al., 2021): the angles.
//
// The table holds cos and sin of position * inverse_frequency for every position, computed as
// Hugging Face Transformers does (modeling_rope_utils): frequencies and angles in fp32, both
// multiplied by the attention scaling of the type.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/status.h"
#include "kernels/rope/rope.h"

namespace tw::kernels {

enum class RopeType : uint8_t {
  standard,     // HF: "default"
  linear,       // positions divided by `factor`
  dynamic_ntk,  // HF: "dynamic": theta grown so that max_position_embeddings * factor fits
  llama3,       // Llama 3.1: low frequencies divided by `factor`, a ramp between
  yarn,         // Peng et al., 2023
  longrope,     // Ding et al., 2024: a divisor per frequency, of two lists
};

// The names are those of `rope_scaling` (rope_parameters) in config.json.
struct RopeParameters {
  RopeType type = RopeType::standard;
  float theta = 10000.0f;
  int32_t head_dim = 0;
  float partial_rotary_factor = 1.0f;
  int64_t max_position_embeddings = 2048;
  float factor = 1.0f;
  // llama3, yarn, longrope: 0 means max_position_embeddings
  int64_t original_max_position_embeddings = 0;
  float low_freq_factor = 1.0f;           // llama3
  float high_freq_factor = 4.0f;          // llama3
  float beta_fast = 32.0f;                // yarn
  float beta_slow = 1.0f;                 // yarn
  std::optional<float> attention_factor;  // yarn, longrope: else derived from the factor
  std::optional<float> mscale;            // yarn (DeepSeek)
  std::optional<float> mscale_all_dim;    // yarn (DeepSeek)
  bool truncate = true;                   // yarn: round the borders of the ramp (gpt-oss: no)
  // longrope: [rotary_dim / 2] each. The long ones are used when sequence_length exceeds the
  // original length; `factor` gives the attention scaling.
  std::vector<float> short_factor;
  std::vector<float> long_factor;
  // dynamic_ntk: the length that the frequencies are made for. Hugging Face follows the longest
  // sequence seen so far, which would rotate cached keys and new queries differently; one fixed
  // length is used here, the context length that is served. 0 means max_position_embeddings. The
  // same holds for longrope.
  int64_t sequence_length = 0;

  bool operator==(const RopeParameters&) const = default;

  // Dimensions that are rotated: head_dim * partial_rotary_factor, rounded down to even.
  int32_t rotary_dim() const;
};

struct RopeFrequencies {
  std::vector<float> inverse;      // [rotary_dim / 2] radians per position
  float attention_scaling = 1.0f;  // multiplies cos and sin
};

// Fails with invalid_argument, naming the parameter that cannot be right.
Expected<RopeFrequencies> rope_frequencies(const RopeParameters& parameters);

class RopeTable {
 public:
  RopeTable() = default;
  // Positions [0, max_positions).
  static Expected<RopeTable> build(const RopeParameters& parameters, int64_t max_positions);

  RopeView view() const { return {cos_.data(), sin_.data(), rotary_dim_}; }
  int64_t max_positions() const { return max_positions_; }

 private:
  std::vector<float> cos_;  // [max_positions, rotary_dim / 2]
  std::vector<float> sin_;  // [max_positions, rotary_dim / 2]
  int32_t rotary_dim_ = 0;
  int64_t max_positions_ = 0;
};

}  // namespace tw::kernels
