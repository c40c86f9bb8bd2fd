// Linear attention by a gated delta net (kernels/delta_net/delta_net.h), as Qwen3-Next and Qwen3.5
// have it:
//
//   q, k, v = silu(convolution(projection(x)))      one convolution over all three
//   z, b, a = projections of x
//   q, k    = q / |q| / sqrt(key_dim), k / |k|      for each head
//   beta    = sigmoid(b), decay = exp(-exp(A_log) softplus(a + dt_bias))
//   output  = out_proj(norm(delta_rule(q, k, v, beta, decay)) silu(z))
//
// It keeps nothing per token: a sequence has the convolution's last inputs and a matrix per head.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/delta_net/delta_net.h"
#include "nn/block.h"
#include "nn/loader.h"
#include "weights/model_config.h"

namespace tw {

struct GatedDeltaConfig {
  int64_t hidden_size = 0;
  kernels::DeltaRuleShape shape;
  float norm_eps = 1e-6f;
  // Whether projections are in_proj_qkvz and in_proj_ba, whose rows are those of one key head after
  // the other (q, k, its values and their z; its b and a), or in_proj_qkv, _z, _b and _a.
  bool is_grouped = true;

  // By the names that config.json gives them: linear_num_key_heads and so on. Fails with
  // unsupported for a linear_conv_kernel_dim that is not 4.
  static Expected<GatedDeltaConfig> from(const ModelConfig& config);
};

// Loads "<prefix>.in_proj_qkvz.weight" and so on. `prefix` is e.g. "model.layers.3.linear_attn".
Expected<std::unique_ptr<Block>> load_gated_delta(const WeightLoader& loader,
                                                  const std::string& prefix,
                                                  const GatedDeltaConfig& config);

}  // namespace tw
