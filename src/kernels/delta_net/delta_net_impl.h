// The kernels of delta_net.h over Vec (math/vector_scalar.h).
//
// Sums over the keys' dimensions run in two vectors, even and odd dimensions, which are added at
// the end: with 32 columns at a time, four chains of FMAs hide their latency.
#pragma once

#include "kernels/delta_net/delta_net.h"
#include "kernels/math/functions.h"

namespace tw::kernels {

// 16 channels, or the last `count` of them.
template <typename Vec>
inline void convolve_block(const ConvolutionArguments& a, int64_t channel, int64_t count) {
  constexpr int kLast = kConvolutionTaps - 1;
  const int64_t channels = a.x.cols;
  Vec weight[kConvolutionTaps];
  for (int tap = 0; tap < kConvolutionTaps; ++tap) {
    weight[tap] = Vec::load_first(a.weight + tap * channels + channel, count);
  }
  for (int seq = 0; seq < a.batch.num_seqs(); ++seq) {
    const int32_t begin = a.batch.seq_starts.data()[seq];
    const int32_t end = a.batch.seq_starts.data()[seq + 1];
    float* state = a.states + a.batch.state_slots.data()[seq] * kLast * channels + channel;
    const bool is_new = a.batch.positions.data()[begin] == 0;
    Vec before[kLast];
    for (int i = 0; i < kLast; ++i) {
      before[i] = is_new ? Vec::zero() : Vec::load_first(state + i * channels, count);
    }
    for (int32_t token = begin; token < end; ++token) {
      float* x = a.x.data + token * a.x.row_stride + channel;
      const Vec own = Vec::load_first(x, count);
      Vec sum = weight[0] * before[0];
      for (int i = 1; i < kLast; ++i) sum = fma(weight[i], before[i], sum);
      vector_silu(fma(weight[kLast], own, sum)).store_first(x, count);
      for (int i = 0; i + 1 < kLast; ++i) before[i] = before[i + 1];
      before[kLast - 1] = own;
    }
    for (int i = 0; i < kLast; ++i) before[i].store_first(state + i * channels, count);
  }
}

template <typename Vec>
void convolve(const ConvolutionArguments& a, Range channels) {
  int64_t channel = channels.begin;
  for (; channel + 16 <= channels.end; channel += 16) convolve_block<Vec>(a, channel, 16);
  if (channel < channels.end) convolve_block<Vec>(a, channel, channels.end - channel);
}

// 16 B columns of one head's state, from column `first` on.
template <typename Vec, int B>
inline void apply_to_columns(const DeltaRuleArguments& a, int32_t seq, int64_t head,
                             int64_t first) {
  const int64_t key_dim = a.shape.key_dim;
  const int64_t key_head = head / (a.shape.num_heads / a.shape.num_key_heads);
  const int32_t begin = a.batch.seq_starts.data()[seq];
  const int32_t end = a.batch.seq_starts.data()[seq + 1];
  float* state = a.states + a.batch.state_slots.data()[seq] * a.shape.state_size() +
                 (head * a.shape.value_dim + first) * key_dim;
  if (a.batch.positions.data()[begin] == 0) {
    for (int64_t i = 0; i < B * key_dim * 16; i += 16) Vec::zero().store(state + i);
  }
  for (int32_t token = begin; token < end; ++token) {
    const float* q = a.q.data + token * a.q.row_stride + key_head * key_dim;
    const float* k = a.k.data + token * a.k.row_stride + key_head * key_dim;
    const float* v = a.v.data + token * a.v.row_stride + head * a.shape.value_dim + first;
    float* out = a.out.data + token * a.out.row_stride + head * a.shape.value_dim + first;
    const Vec decay = Vec::broadcast(a.decay.data[token * a.decay.row_stride + head]);
    const Vec beta = Vec::broadcast(a.beta.data[token * a.beta.row_stride + head]);

    Vec recalled[B][2];
    for (int b = 0; b < B; ++b) recalled[b][0] = recalled[b][1] = Vec::zero();
    for (int64_t d = 0; d < key_dim; d += 2) {
      const Vec even = Vec::broadcast(k[d]);
      const Vec odd = Vec::broadcast(k[d + 1]);
      for (int b = 0; b < B; ++b) {
        const float* row = state + (b * key_dim + d) * 16;
        recalled[b][0] = fma(Vec::load(row), even, recalled[b][0]);
        recalled[b][1] = fma(Vec::load(row + 16), odd, recalled[b][1]);
      }
    }
    Vec change[B];
    Vec sum[B][2];
    for (int b = 0; b < B; ++b) {
      const Vec expected = (recalled[b][0] + recalled[b][1]) * decay;
      change[b] = (Vec::load(v + b * 16) - expected) * beta;
      sum[b][0] = sum[b][1] = Vec::zero();
    }
    for (int64_t d = 0; d < key_dim; d += 2) {
      for (int b = 0; b < B; ++b) {
        float* row = state + (b * key_dim + d) * 16;
        const Vec even = fma(Vec::broadcast(k[d]), change[b], Vec::load(row) * decay);
        const Vec odd = fma(Vec::broadcast(k[d + 1]), change[b], Vec::load(row + 16) * decay);
        even.store(row);
        odd.store(row + 16);
        sum[b][0] = fma(even, Vec::broadcast(q[d]), sum[b][0]);
        sum[b][1] = fma(odd, Vec::broadcast(q[d + 1]), sum[b][1]);
      }
    }
    for (int b = 0; b < B; ++b) (sum[b][0] + sum[b][1]).store(out + b * 16);
  }
}

template <typename Vec>
void apply_delta_rule(const DeltaRuleArguments& a, int32_t seq, Range items) {
  const int64_t per_head = (a.shape.value_dim + 31) / 32;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t head = item / per_head;
    const int64_t first = item % per_head * 32;
    if (first + 32 <= a.shape.value_dim) {
      apply_to_columns<Vec, 2>(a, seq, head, first);
    } else {
      apply_to_columns<Vec, 1>(a, seq, head, first);
    }
  }
}

}  // namespace tw::kernels
