// Sixteen floats, the vector that the kernels outside GEMM are written over.
//
// vector_scalar.h, vector_avx2.h and vector_avx512.h define the same class Vec: sixteen lanes on
// every instruction set (two registers with AVX2, an array here), with the same rounding in every
// operation. A kernel is a template over Vec, written once; its instances differ in speed and in
// nothing else: they agree bit for bit.
//
// Vec lives in an anonymous namespace, which gives every template instantiated over it internal
// linkage. So code compiled for one instruction set can never be picked by the linker for another.
// The kernels' files include exactly one of the three headers, and are compiled without
// contraction of products and sums.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace tw::kernels::scalar {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  // Vectors that a micro-kernel can keep in registers, beside what it takes from memory one at a
  // time.
  static constexpr int kRegisters = 7;

  float lane[kLanes];

  template <typename Function>
  static Vec generate(Function function) {
    Vec result;
    for (int i = 0; i < kLanes; ++i) result.lane[i] = function(i);
    return result;
  }

  static Vec zero() { return broadcast(0.0f); }
  static Vec broadcast(float value) {
    return generate([&](int) { return value; });
  }
  static Vec load(const float* data) {
    return generate([&](int i) { return data[i]; });
  }
  // The first `count` elements (0 to 16); the other lanes are zero and not read.
  static Vec load_first(const float* data, int64_t count) {
    return generate([&](int i) { return i < count ? data[i] : 0.0f; });
  }
  static Vec load_bf16(const bf16_t* data) {
    return generate([&](int i) { return from_bits(uint32_t{data[i].bits} << 16); });
  }
  static Vec load_f16(const f16_t* data) {
    return generate([&](int i) { return to_float(data[i]); });
  }
  // Of e4m3 times 2^-8: its bits, moved to where f16 has them. (NaN comes out as 480 * 2^-8.)
  static Vec load_narrow(const f8_e4m3_t* data) {
    return generate([&](int i) { return scaled_e4m3(data[i]); });
  }
  static Vec load_narrow(const bf16_t* data) { return load_bf16(data); }
  // 32 values: the even ones, or the odd ones. e4m3 times 2^-8.
  static Vec load_even(const bf16_t* data) {
    return generate([&](int i) { return from_bits(uint32_t{data[2 * i].bits} << 16); });
  }
  static Vec load_odd(const bf16_t* data) { return load_even(data + 1); }
  static Vec load_even(const f8_e4m3_t* data) {
    return generate([&](int i) { return scaled_e4m3(data[2 * i]); });
  }
  static Vec load_odd(const f8_e4m3_t* data) { return load_even(data + 1); }

  void store(float* data) const {
    for (int i = 0; i < kLanes; ++i) data[i] = lane[i];
  }
  void store_first(float* data, int64_t count) const {
    for (int i = 0; i < kLanes && i < count; ++i) data[i] = lane[i];
  }
  // Rounded to nearest even; NaN stays NaN (quiet). e4m3: what is too large becomes 448.
  void store_narrow(bf16_t* data) const {
    for (int i = 0; i < kLanes; ++i) data[i] = to_bf16(lane[i]);
  }
  void store_narrow(f8_e4m3_t* data) const {
    for (int i = 0; i < kLanes; ++i) data[i] = to_f8_e4m3(lane[i]);
  }
  // The inverse of load_even and load_odd, for values that are exact in bf16.
  static void store_pairs(const Vec& even, const Vec& odd, bf16_t* data) {
    for (int i = 0; i < kLanes; ++i) {
      data[2 * i] = {static_cast<uint16_t>(to_bits(even.lane[i]) >> 16)};
      data[2 * i + 1] = {static_cast<uint16_t>(to_bits(odd.lane[i]) >> 16)};
    }
  }
  // to[j][i] = from[i][j] for 16 x 16 words of any meaning; strides in words.
  static void transpose(const uint32_t* from, int64_t from_stride, uint32_t* to,
                        int64_t to_stride) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < kLanes; ++j) to[j * to_stride + i] = from[i * from_stride + j];
    }
  }

  // Lane i is added to lane i + 8, then + 4, + 2, + 1.
  float reduce_add() const {
    Vec sum = *this;
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) sum.lane[i] = sum.lane[i] + sum.lane[i + width];
    }
    return sum.lane[0];
  }
  float reduce_max() const {
    Vec best = *this;
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) best.lane[i] = larger(best.lane[i], best.lane[i + width]);
    }
    return best.lane[0];
  }

  static float scaled_e4m3(f8_e4m3_t value) {
    const uint32_t sign = value.bits & 0x80u;
    return to_float(f16_t{static_cast<uint16_t>(sign << 8 | (value.bits & 0x7fu) << 7)});
  }
  static float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  static uint32_t to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }
  // As the processor's maximum: b when either is NaN.
  static float larger(float a, float b) { return a > b ? a : b; }
  static float smaller(float a, float b) { return a < b ? a : b; }
};

inline Vec operator+(const Vec& a, const Vec& b) {
  return Vec::generate([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec operator-(const Vec& a, const Vec& b) {
  return Vec::generate([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec operator*(const Vec& a, const Vec& b) {
  return Vec::generate([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec operator/(const Vec& a, const Vec& b) {
  return Vec::generate([&](int i) { return a.lane[i] / b.lane[i]; });
}
// a * b + c, rounded once.
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return Vec::generate([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
// b when either is NaN.
inline Vec max(const Vec& a, const Vec& b) {
  return Vec::generate([&](int i) { return Vec::larger(a.lane[i], b.lane[i]); });
}
inline Vec min(const Vec& a, const Vec& b) {
  return Vec::generate([&](int i) { return Vec::smaller(a.lane[i], b.lane[i]); });
}
inline Vec abs(const Vec& a) {
  return Vec::generate(
      [&](int i) { return Vec::from_bits(Vec::to_bits(a.lane[i]) & 0x7fffffffu); });
}
// The sign of `sign`, the magnitude of `magnitude`.
inline Vec copy_sign(const Vec& magnitude, const Vec& sign) {
  return Vec::generate([&](int i) {
    return Vec::from_bits((Vec::to_bits(magnitude.lane[i]) & 0x7fffffffu) |
                          (Vec::to_bits(sign.lane[i]) & 0x80000000u));
  });
}
// A float whose exponent field is the low 9 bits of a's representation (sign and exponent).
inline Vec exponent_from_low_bits(const Vec& a) {
  return Vec::generate([&](int i) { return Vec::from_bits(Vec::to_bits(a.lane[i]) << 23); });
}

}  // namespace
}  // namespace tw::kernels::scalar
