// Rounding of weights to the numbers that a quantized format has; all to nearest, ties to even.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/dtype.h"

namespace tw {

// As std::min and std::max of numbers, in the form that compilers vectorize.
inline float lesser(float a, float b) {
  return a < b ? a : b;
}
inline float greater(float a, float b) {
  return a > b ? a : b;
}

// A magnitude that, added and subtracted, leaves an integer: what lies behind the point does not
// fit beside it. For |value| below 2^22. Unlike std::nearbyint, it is vectorized on any machine.
inline float round_to_integer(float value) {
  constexpr float kInteger = 0x1.8p23f;
  return (value + kInteger) - kInteger;
}

inline float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = greater(std::abs(value), largest);
  return largest;
}

inline float round_to_bf16(float value) {
  return to_float(to_bf16(value));
}

// The e2m1 float (0, 0.5, 1, 1.5, 2, 3, 4, 6, or its negative) nearest to `value`, as a float.
// Beyond 6 it stays there. Numbers are half a power of two apart: 0.5 below 2, 1 below 4, then 2.
inline float round_to_e2m1(float value) {
  const float magnitude = lesser(std::abs(value), 6.0f);
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) & 0x7f800000u);
  const float shift = greater(power, 1.0f) * 0x1.8p22f;  // see round_to_integer
  return std::copysign((magnitude + shift) - shift, value);
}

// The 4 bits of such a float: sign, then the magnitude's place among the eight.
inline uint8_t e2m1_bits(float value) {
  const float magnitude = std::abs(value);
  const float place = magnitude <= 2.0f   ? 2.0f * magnitude
                      : magnitude <= 4.0f ? magnitude + 2.0f
                                          : 0.5f * magnitude + 4.0f;
  return static_cast<uint8_t>(static_cast<int>(place) | (std::signbit(value) ? 8 : 0));
}

template <typename T>
void store_at(std::byte* to, int64_t index, T value) {
  std::memcpy(to + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// Sum of squared differences between the weights of a group and what round(weight / scale) * scale
// makes of them. The group's size is a multiple of 16.
template <typename Round>
float squared_error(std::span<const float> group, float scale, Round round) {
  constexpr size_t kLanes = 16;  // sums that do not wait for each other
  float sums[kLanes] = {};
  const float inverse = 1.0f / scale;
  for (size_t i = 0; i < group.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float weight = group[i + lane];
      const float difference = weight - round(weight * inverse) * scale;
      sums[lane] += difference * difference;
    }
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace tw
