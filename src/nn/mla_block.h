// Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024), computed in the latent space.
//
//   q        = q_b(norm(q_a(x))), or q_proj(x)           heads of [q_nope, q_rope]
//   latent   = norm(kv_a(x)), k_rope = the rest of kv_a(x); both are cached, one row for all heads
//   absorbed = [W_UK^T q_nope, rotated q_rope]
//   output   = o_proj(W_UV attention(absorbed, rows))    see kernels/attention/latent_attention.h
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/rope/rope_table.h"
#include "nn/block.h"
#include "nn/loader.h"
#include "weights/model_config.h"

namespace tw {

struct MlaConfig {
  int64_t hidden_size = 0;
  int32_t num_heads = 0;
  int64_t q_lora_rank = 0;  // 0: queries are projected at once
  int32_t kv_lora_rank = 0;
  int32_t qk_nope_head_dim = 0;
  int32_t qk_rope_head_dim = 0;
  int32_t v_head_dim = 0;
  kernels::RopeParameters rope;  // of qk_rope_head_dim
  bool interleaved_rope = true;  // pairs are neighbours (2i, 2i + 1), not halves
  float scale = 0.0f;            // of the scores
  bool bias = false;             // of q_a, kv_a and o_proj
  float norm_eps = 1e-6f;

  // By the names that config.json gives them; YaRN's mscale_all_dim is in the scale.
  static Expected<MlaConfig> from(const ModelConfig& config);
};

// Loads "<prefix>.kv_a_proj_with_mqa.weight" and so on. `prefix` is e.g.
// "model.layers.3.self_attn".
Expected<std::unique_ptr<Block>> load_mla(const WeightLoader& loader, const std::string& prefix,
                                          const MlaConfig& config);

}  // namespace tw
