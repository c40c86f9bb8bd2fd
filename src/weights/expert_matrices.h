// The matrices of a layer's experts, however the checkpoint holds them:
//
//   a module for each    <prefix>.<e>.gate_proj, .up_proj, .down_proj, stored as the checkpoint's
//                        scheme has it                 Mixtral, Qwen, DeepSeek, GLM ...
//   all in one tensor    <prefix>.gate_up_proj [E, 2 I, H] and .down_proj [E, H, I], gate above up;
//                        or their transposes [E, H, 2 I] and [E, I, H]; floats
//                                                      Llama 4, transformers 5
//   in MXFP4             <prefix>.gate_up_proj_blocks and _scales, .down_proj_blocks and _scales,
//                        rows of gate and up in turns  gpt-oss
//   GGUF                 <prefix>.gate_proj.weight [E, I, H], .up_proj.weight, .down_proj.weight
//
// E experts, I intermediate and H hidden size.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/schemes/scheme.h"

namespace tw {

struct ExpertLayout {
  int64_t num_experts = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  bool has_bias = false;
  // Modules of one expert, behind "<prefix>.<e>.".
  std::string gate_name = "gate_proj";
  std::string up_name = "up_proj";
  std::string down_name = "down_proj";
  // Of tensors that hold all experts: [E, columns, rows], and gate and up in turns.
  bool is_transposed = false;
  bool is_interleaved = false;
};

struct ExpertMatrices {
  // [num_experts] each: [I, H], [I, H] and [H, I].
  std::vector<std::unique_ptr<StoredMatrix>> gate, up, down;
  // [num_experts] of [I], [I] and [H], or empty.
  std::vector<std::vector<float>> gate_bias, up_bias, down_bias;
};

// Fails like Scheme::open: names the file, the tensor, what it has and what is valid.
Expected<ExpertMatrices> open_experts(const Checkpoint& checkpoint, const Scheme& scheme,
                                      const std::string& prefix, const ExpertLayout& layout);

}  // namespace tw
