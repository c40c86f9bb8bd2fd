// Elementary functions over Vec (see vector_scalar.h). Their bounds are checked by
// tests/kernels/activation_test.cc and sampling_test.cc.
#pragma once

namespace tw::kernels {

// e^x within 2 units in the last place for -87.3 <= x <= 88.3; 0 below -87.7, infinity above 88.4.
// exp(0) is exactly 1; NaN stays NaN.
//
// x = n ln2 + r with |r| <= ln2 / 2, then e^x = 2^n e^r. e^r is 1 + r + r^2 p(r), with p of degree
// 4 fitted to a relative error of 4e-9.
template <typename Vec>
inline Vec vector_exp(Vec x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; 127 is the exponent bias.
  const Vec round_and_bias = Vec::broadcast(0x1.8p23f + 127.0f);
  const Vec ln2_high = Vec::broadcast(0x1.63p-1f);  // 9 bits: n * ln2_high is exact
  const Vec ln2_low = Vec::broadcast(-0x1.bd0106p-13f);
  // Clamped so that n stays within [-127, 128], the ends standing for 0 and infinity.
  x = max(Vec::broadcast(-88.0f), x);
  x = min(Vec::broadcast(88.4f), x);
  const Vec biased = fma(x, Vec::broadcast(0x1.715476p0f), round_and_bias);
  const Vec n = round_and_bias - biased;  // negated
  Vec r = fma(n, ln2_high, x);
  r = fma(n, ln2_low, r);
  Vec p = Vec::broadcast(0x1.6a23d0p-10f);
  p = fma(p, r, Vec::broadcast(0x1.123a20p-7f));
  p = fma(p, r, Vec::broadcast(0x1.5558f2p-5f));
  p = fma(p, r, Vec::broadcast(0x1.555492p-3f));
  p = fma(p, r, Vec::broadcast(0x1.fffffcp-2f));
  p = fma(p * r, r, r);  // r + r^2 p(r); its rounding error is small beside the 1 added last
  return (Vec::broadcast(1.0f) + p) * exponent_from_low_bits(biased);
}

// x / (1 + e^-x), within 4 units in the last place where it is a normal number.
template <typename Vec>
inline Vec vector_silu(Vec x) {
  const Vec one = Vec::broadcast(1.0f);
  return x / (one + vector_exp(Vec::zero() - x));
}

// 1 / (1 + e^-x), within 4 units in the last place where it is a normal number.
template <typename Vec>
inline Vec vector_sigmoid(Vec x) {
  const Vec one = Vec::broadcast(1.0f);
  return one / (one + vector_exp(Vec::zero() - x));
}

// x (1 + erf(x / sqrt 2)) / 2, within 3e-7 of it in absolute terms, or 3e-7 |x| where |x| > 1.
// erfc by Abramowitz and Stegun 7.1.26, applied to |x| so that the left tail does not cancel.
template <typename Vec>
inline Vec vector_gelu(Vec x) {
  const Vec one = Vec::broadcast(1.0f);
  const Vec z = abs(x) * Vec::broadcast(0.70710678f);
  const Vec t = one / fma(z, Vec::broadcast(0.3275911f), one);
  Vec p = Vec::broadcast(1.061405429f);
  p = fma(p, t, Vec::broadcast(-1.453152027f));
  p = fma(p, t, Vec::broadcast(1.421413741f));
  p = fma(p, t, Vec::broadcast(-0.284496736f));
  p = fma(p, t, Vec::broadcast(0.254829592f));
  const Vec half_erfc = Vec::broadcast(0.5f) * (p * t) * vector_exp(Vec::zero() - z * z);
  // x >= 0: x (1 - erfc/2) = x - |x| erfc/2;   x < 0: x erfc/2 = -|x| erfc/2.
  return max(Vec::zero(), x) - abs(x) * half_erfc;
}

// The usual approximation x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, which equals
// x / (1 + e^(-2u)) with u the argument of tanh.
template <typename Vec>
inline Vec vector_gelu_tanh(Vec x) {
  const Vec one = Vec::broadcast(1.0f);
  const Vec cubic = fma(x * x, Vec::broadcast(0.044715f), one) * x;
  return x / (one + vector_exp(cubic * Vec::broadcast(-2.0f * 0.7978845608f)));
}

// tanh within 2e-7 of it in absolute terms.
template <typename Vec>
inline Vec vector_tanh(Vec x) {
  const Vec one = Vec::broadcast(1.0f);
  const Vec decay = vector_exp(abs(x) * Vec::broadcast(-2.0f));
  return copy_sign((one - decay) / (one + decay), x);
}

}  // namespace tw::kernels
