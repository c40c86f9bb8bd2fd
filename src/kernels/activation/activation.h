// The gate of a gated MLP: out = f(gate) * up, f being SiLU or GELU (SwiGLU and GeGLU; Shazeer,
// 2020), or plain f.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/kernel_table.h"

namespace tw::kernels {

enum class Activation : uint8_t {
  silu,       // x / (1 + e^-x)                  HF: silu, swish
  gelu,       // x (1 + erf(x / sqrt 2)) / 2     HF: gelu
  gelu_tanh,  // its tanh approximation          HF: gelu_pytorch_tanh, gelu_new
  sigmoid,    // 1 / (1 + e^-x)                  gates of attention's output
};

const char* to_string(Activation activation);

// gate and up may be halves of one matrix (same row stride, up = gate + n); out may be gate or up.
struct GatedActivationArguments {
  Activation activation = Activation::silu;
  Matrix<const float> gate;           // [rows, n]
  Matrix<const float> up;             // [rows, n]
  Matrix<float> out;                  // [rows, n]
  const float* row_scales = nullptr;  // [rows] or null: what gate and up are multiplied by before
};

// The gate of gpt-oss (OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025):
//   g = min(gate, limit), u = clamp(up, -limit, limit), out = g / (1 + e^(-alpha g)) * (u + 1)
struct ClampedSwiGlu {
  float alpha = 1.702f;
  float limit = 7.0f;
};

// Matrices as for GatedActivationArguments.
struct ClampedSwiGluArguments {
  ClampedSwiGlu parameters;
  Matrix<const float> gate;  // [rows, n]
  Matrix<const float> up;    // [rows, n]
  Matrix<float> out;         // [rows, n]
};

// gate and up come interleaved by panels of 16 channels, as a GEMM over weights packed that way
// leaves them: 16 of gate, 16 of up, the next 16 of gate ... n is padded to a multiple of 16.
struct InterleavedActivationArguments {
  Activation activation = Activation::silu;
  Matrix<const float> gate_up;  // [rows, 2 * n rounded up to 16]
  Matrix<float> out;            // [rows, n]
};

// out = f(x), for MLPs without a gate. out may be x.
struct ActivationArguments {
  Activation activation = Activation::gelu;
  Matrix<const float> x;  // [rows, n]
  Matrix<float> out;      // [rows, n]
};

// x = cap * tanh(x / cap), in place (Gemma's logits).
struct SoftCapArguments {
  float cap = 0.0f;  // positive
  Matrix<float> x;   // [rows, n]
};

// Each function computes rows [rows.begin, rows.end), soft_cap columns of all rows: logits are few
// rows of many columns.
struct ActivationKernels {
  void (*gated)(const GatedActivationArguments& arguments, Range rows);
  void (*clamped_swiglu)(const ClampedSwiGluArguments& arguments, Range rows);
  void (*interleaved)(const InterleavedActivationArguments& arguments, Range rows);
  void (*plain)(const ActivationArguments& arguments, Range rows);
  void (*soft_cap)(const SoftCapArguments& arguments, Range columns);
};

std::span<const KernelRow<ActivationKernels>> activation_kernels();
const ActivationKernels& select_activation(const CpuFeatures& features);

namespace scalar {
extern const ActivationKernels kActivationKernels;
}
namespace avx2 {
extern const ActivationKernels kActivationKernels;
}
namespace avx512 {
extern const ActivationKernels kActivationKernels;
}

}  // namespace tw::kernels
