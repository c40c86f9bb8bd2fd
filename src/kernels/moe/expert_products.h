// What the experts of a mixture compute: down(f(gate(x)) * up(x)), each for the rows of the tokens
// that chose it.
//
// Four steps with a barrier between each:
//   gate_and_up       activated = f(gate(x)) * up(x), split over threads by panels of all experts
//   prepare_activated rows of `activated` in the form that the down products read, split by rows
//   down              output = down(activated), split by panels
// and combine (combine.h). A panel's product is computed by the kernels of gemm.h: a row's bits do
// not depend on the rows beside it, nor on the split.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/thread_team.h"
#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"

namespace tw::kernels {

struct ExpertMatrix {
  PackedWeight weight;
  const GemmKernel* kernel = nullptr;
  const GemmKernel* prefill_kernel = nullptr;  // of rows of prompts; often the same
  std::vector<float> bias;                     // [n] or empty

  const GemmKernel& kernel_of(bool prompts) const { return prompts ? *prefill_kernel : *kernel; }
};

// gate and up are [intermediate_size, hidden_size], down is [hidden_size, intermediate_size].
struct ExpertWeights {
  ExpertMatrix gate, up, down;
};

// f, and how gate and up meet.
struct ExpertActivation {
  Activation activation = Activation::silu;
  std::optional<ClampedSwiGlu> clamped;  // instead of it
};

// Experts of equal sizes, and the rows that one call computes, all of one class. Their gates and
// ups read activations of one format, and so do their downs.
struct ExpertSet {
  std::span<const ExpertWeights> experts;
  bool prompts = false;             // whether the rows are those of prompts
  const int32_t* starts = nullptr;  // [experts + 1]: expert e has rows [starts[e], starts[e + 1]),
                                    // of which all that follows begins with starts[0]
  PreparedActivations input;        // of all rows
  const float* input_scales = nullptr;  // [rows] or null: what each input is multiplied by
  ExpertActivation activation;
  Matrix<float> activated;       // [rows, intermediate_size]
  Matrix<float> up;              // [rows, intermediate_size]: scratch
  PreparedActivations prepared;  // of `activated`
  Matrix<float> output;          // [rows, hidden_size]

  int64_t num_rows() const { return starts[experts.size()] - starts[0]; }
};

void gate_and_up(std::span<const ExpertSet> sets, const ActivationKernels& kernels, int rank,
                 int num_threads);
void prepare_activated(std::span<const ExpertSet> sets, int rank, int num_threads);
void down(std::span<const ExpertSet> sets, int rank, int num_threads);

}  // namespace tw::kernels
