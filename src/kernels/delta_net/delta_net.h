// The parts of a gated delta net (Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving
// Mamba2 with Delta Rule", 2024) that carry a state from token to token.
//
// A short causal convolution of each channel, over the token and the three before it:
//
//   y[t, c] = silu(sum_j weight[j, c] x[t - 3 + j, c])
//
// and, for each head, the gated delta rule over a state S [key_dim, value_dim]:
//
//   S     = decay_t S
//   S    += k_t (beta_t (v_t - S^T k_t))^T
//   out_t = S^T q_t
//
// Both go token by token, for prompts too. The usual way for prompts, chunks of 64 tokens whose
// updates are condensed into matrix products, exists because GPUs keep no state near: here 32
// columns of a head's state (16 KB for keys of 128) stay in L1 while all tokens of the step pass,
// so that an element of it costs two loads, a store and three operations a token. In return a
// token's result does not depend on where the prompt was cut into steps: it is the same bits.
//
// States belong to slots, one for each sequence that runs. A sequence whose first token is at
// position 0 begins with zeros, whatever its slot held.
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "core/tensor.h"
#include "core/thread_team.h"
#include "kernels/kernel_table.h"

namespace tw::kernels {

inline constexpr int kConvolutionTaps = 4;

// The arrays of a step that concern states; see nn/batch.h.
struct StateBatch {
  std::span<const int32_t> positions;    // [num_tokens]
  std::span<const int32_t> seq_starts;   // [num_seqs + 1] into tokens
  std::span<const int32_t> state_slots;  // [num_seqs]

  int32_t num_seqs() const { return static_cast<int32_t>(state_slots.size()); }
};

struct ConvolutionArguments {
  StateBatch batch;
  Matrix<float> x;                // [num_tokens, channels], in place
  const float* weight = nullptr;  // [kConvolutionTaps, channels], that of the token itself last
  float* states = nullptr;        // [slots, kConvolutionTaps - 1, channels]: the last inputs
};

struct DeltaRuleShape {
  int32_t num_key_heads = 0;  // of queries and keys; each serves num_heads / num_key_heads
  int32_t num_heads = 0;      // of values
  int32_t key_dim = 0;        // even
  int32_t value_dim = 0;      // a multiple of 16

  // Fails with unsupported, naming the number that does not fit.
  Status validate() const;
  // Floats of a sequence's state: for each head, [value_dim / 16][key_dim][16].
  int64_t state_size() const { return int64_t{num_heads} * key_dim * value_dim; }
  // What a thread does at a time: up to 32 columns of a head's state.
  int32_t items_per_head() const { return (value_dim + 31) / 32; }
  int64_t num_items() const { return int64_t{num_heads} * items_per_head(); }
};

struct DeltaRuleArguments {
  DeltaRuleShape shape;
  StateBatch batch;
  Matrix<const float> q;      // [num_tokens, num_key_heads * key_dim], normalized and scaled
  Matrix<const float> k;      // [num_tokens, num_key_heads * key_dim], normalized
  Matrix<const float> v;      // [num_tokens, num_heads * value_dim]
  Matrix<const float> beta;   // [num_tokens, num_heads]
  Matrix<const float> decay;  // [num_tokens, num_heads]
  Matrix<float> out;          // [num_tokens, num_heads * value_dim]; not v
  float* states = nullptr;    // [slots, state_size]
};

struct DeltaNetKernels {
  // All tokens, channels [channels.begin, channels.end); begin is a multiple of 16.
  void (*convolve)(const ConvolutionArguments& arguments, Range channels);
  // All tokens of one sequence, items [items.begin, items.end).
  void (*apply_delta_rule)(const DeltaRuleArguments& arguments, int32_t seq, Range items);
};

std::span<const KernelRow<DeltaNetKernels>> delta_net_kernels();
const DeltaNetKernels& select_delta_net(const CpuFeatures& features);

namespace scalar {
extern const DeltaNetKernels kDeltaNetKernels;
}
namespace avx2 {
extern const DeltaNetKernels kDeltaNetKernels;
}
namespace avx512 {
extern const DeltaNetKernels kDeltaNetKernels;
}

}  // namespace tw::kernels
