// The attention block that most decoders share: grouped queries, rotary positions, a window, and
// the options in which families differ.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention.h"
#include "nn/block.h"
#include "nn/loader.h"
#include "nn/rope.h"
#include "weights/model_config.h"

namespace tw {

enum class QkNormKind : uint8_t {
  none,
  per_head,    // weights [head_dim]
  projection,  // weights of the whole projection's width
  unweighted,  // per head, without weights: Llama 4's L2 norm
};

struct AttentionConfig {
  int64_t hidden_size = 0;
  int64_t input_size = 0;  // of queries, keys and values; 0: hidden_size
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  std::optional<kernels::RopeParameters> rope;  // none: no positions in this layer
  bool interleaved_rope = false;  // the checkpoint rotates neighbours (2i, 2i + 1), not halves
  float scale = 0.0f;             // of the scores; 0: 1 / sqrt(head_dim)
  float soft_cap = 0.0f;          // of the scores; 0: none
  int32_t sliding_window = 0;     // positions a token sees, itself included; 0: all
  int32_t attention_chunk = 0;    // a token sees its own piece of so many positions; 0: all
  std::optional<QueryTemperature> temperature = {};
  bool qkv_bias = false;
  bool output_bias = false;
  bool output_gate = false;  // q_proj has for each head its query, then a gate of its output
  QkNormKind qk_norm = QkNormKind::none;
  float norm_eps = 1e-6f;
  float norm_weight_offset = 0.0f;  // added to what the checkpoint holds
  // Names behind the block's prefix. One name for qkv is a tensor of all three, in that order.
  std::vector<std::string> qkv_names = {"q_proj", "k_proj", "v_proj"};
  std::string output_name = "o_proj";
  std::string q_norm_name = "q_norm", k_norm_name = "k_norm";
  std::string sinks_name;  // a logit per head that takes part in the softmax alone; empty: none

  // Sizes, rotation and biases of the common fields; no window, no norms.
  static AttentionConfig from(const ModelConfig& config);
};

// Loads "<prefix>.q_proj.weight" and so on. `prefix` is e.g. "model.layers.3.self_attn".
Expected<std::unique_ptr<Block>> load_attention(const WeightLoader& loader,
                                                const std::string& prefix,
                                                const AttentionConfig& config);

}  // namespace tw
