// Weights of 4-bit floats (e2m1), two to a byte, the even k in the low nibble.
//
// NVFP4: scales of groups of 16 in e4m3, and one f32 for the tensor.
//   ModelOpt            <module>.weight u8 [N, K/2], .weight_scale [N, K/16], .weight_scale_2 []
//                       weight = value * scale * scale_2
//   compressed-tensors  <module>.weight_packed, .weight_scale, .weight_global_scale [1]
//                       weight = value * scale / global_scale
// MXFP4: scales of groups of 32 are powers of two (e8m0: the exponent plus 127).
//   compressed-tensors  <module>.weight_packed u8 [N, K/2], .weight_scale u8 [N, K/32]
//   gpt-oss             <module>_blocks u8 [experts, N, K/32, 16], _scales u8 [experts, N, K/32]
//
// A scale of the activations that the checkpoint may have is not used: they keep more than 4 bits.
#pragma once

#include "weights/schemes/scheme.h"

namespace tw {

std::unique_ptr<const Scheme> make_modelopt_nvfp4_scheme();
std::unique_ptr<const Scheme> make_nvfp4_scheme();
std::unique_ptr<const Scheme> make_mxfp4_scheme();

// Rows first, first + step, ... of an expert's matrix: gpt-oss has gate and up in turns.
struct RowSelection {
  int64_t first = 0;
  int64_t step = 1;
};

// Rows of one expert of gpt-oss, as a matrix [rows, columns]. `module` is the name without
// "_blocks": "model.layers.0.mlp.experts.gate_up_proj". [num_experts, stored_rows, columns] is what
// the tensors must have; expert and selection must lie within.
Expected<std::unique_ptr<StoredMatrix>> open_mxfp4_expert(const Checkpoint& checkpoint,
                                                          const std::string& module,
                                                          int64_t num_experts, int64_t stored_rows,
                                                          int64_t columns, int64_t expert,
                                                          RowSelection selection, int64_t rows);

}  // namespace tw
