// The gated feed-forward network of dense decoders: down(f(gate(x)) * up(x)).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/activation/activation.h"
#include "nn/block.h"
#include "nn/loader.h"
#include "weights/model_config.h"

namespace tw {

struct GatedFfnConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  std::string hidden_act = "silu";  // Transformers' name
  bool bias = false;
  // Names behind the block's prefix. One name for gate and up is a tensor of both, in that order.
  std::vector<std::string> gate_up_names = {"gate_proj", "up_proj"};
  std::string down_name = "down_proj";

  static GatedFfnConfig from(const ModelConfig& config);
};

// Loads "<prefix>.gate_proj.weight" and so on. `prefix` is e.g. "model.layers.3.mlp".
Expected<std::unique_ptr<Block>> load_gated_ffn(const WeightLoader& loader,
                                                const std::string& prefix,
                                                const GatedFfnConfig& config);

// The activation of a name in config.json; unsupported, naming `source` and what is known.
Expected<kernels::Activation> activation_of(const std::string& hidden_act,
                                            const std::string& source);

}  // namespace tw
