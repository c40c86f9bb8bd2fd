// The two halves of MLA's kv_b_proj, as absorbed into queries and outputs.
//
//   kv_b_proj  [num_heads * (nope_dim + value_dim), latent_dim]: for each head W_UK above W_UV
//   keys       W_UK^T for each head, [latent_dim, nope_dim]: q_nope . (W_UK latent) becomes
//              (W_UK^T q_nope) . latent
//   values     W_UV for each head, [value_dim, latent_dim]
//
// values keeps the checkpoint's format, exactly. keys does for fp8 where a block of scales covers
// whole 128 x 128 blocks of W_UK, as in DeepSeek's checkpoints; otherwise it is bf16, exact for
// bf16 checkpoints and rounded for quantized ones. GGUF has the two halves as they are used here:
//
//   k_b_proj  [num_heads * latent_dim, nope_dim]   keys
//   v_b_proj  [num_heads * value_dim, latent_dim]  values
//
// Both keep the checkpoint's format.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "nn/batched_linear.h"
#include "nn/loader.h"

namespace tw {

struct AbsorbedProjections {
  BatchedLinear keys;
  BatchedLinear values;

  // Loads "<prefix>.kv_b_proj", or its halves where the checkpoint has them. Of num_heads, `heads`
  // are loaded. Sizes are multiples of 16; unsupported otherwise.
  static Expected<AbsorbedProjections> load(const WeightLoader& loader, const std::string& prefix,
                                            int32_t num_heads, int64_t nope_dim, int64_t value_dim,
                                            int64_t latent_dim, Range heads);
};

}  // namespace tw
