// A mixture of experts: for each token a router chooses some of many feed-forward networks, and
// their weighted sum, with that of an expert that all tokens share, is the block's output.
//
//   out = sum over chosen e of weight_e * down_e(f(gate_e(x)) * up_e(x)) + shared(x)
//
// One block for all families: what differs is the router (kernels/moe/router.h), the names, and
// where the weight applies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/activation/activation.h"
#include "kernels/moe/router.h"
#include "nn/block.h"
#include "nn/loader.h"
#include "weights/expert_matrices.h"
#include "weights/model_config.h"

namespace tw {

struct MoeConfig {
  kernels::RouterConfig router;
  ExpertLayout experts;
  std::string hidden_act = "silu";                       // Transformers' name
  std::optional<kernels::ClampedSwiGlu> clamped_swiglu;  // instead of hidden_act
  // Llama 4: the weights multiply what the experts read instead of what they give.
  bool weights_inputs = false;
  int64_t shared_intermediate_size = 0;  // 0: no shared expert

  // Names behind the block's prefix.
  std::string router_name = "gate";
  bool router_bias = false;
  std::string correction_bias_name;  // empty: none
  std::string experts_name = "experts";
  std::string shared_name = "shared_experts";
  std::string shared_gate_name;  // of the shared expert's weight, sigmoid(w x); empty: 1

  // Sizes, number of experts and so on by the names that families give them in config.json; the
  // router's kind is the family's to set.
  static Expected<MoeConfig> from(const ModelConfig& config);
};

// Loads "<prefix>.gate.weight", "<prefix>.experts.0.gate_proj.weight" and so on. `prefix` is e.g.
// "model.layers.3.mlp".
Expected<std::unique_ptr<Block>> load_moe(const WeightLoader& loader, const std::string& prefix,
                                          const MoeConfig& config);

}  // namespace tw
