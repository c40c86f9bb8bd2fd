// Weights of one byte with fp32 scales, which several configurations describe:
//
//   <module>.weight          e4m3 or int8 [N, K]
//   <module>.<scale_name>    float (f32, bf16, f16): one for the tensor ([] or [1]), one per
//   channel
//                            ([N] or [N, 1]), or one per block ([N / block rows, K / block
//                            columns], rounded up)
//
// weight = value * scale. Scales of activations that a checkpoint may have are not used: e4m3
// weights meet bf16 activations, which keep more bits, and int8 weights meet activations that are
// quantized per token as they come.
//
// Layers that the configuration leaves out (its lists are called ignore or modules_to_not_convert)
// have a plain float weight, which tells them apart.
#pragma once

#include <memory>

#include "core/json.h"
#include "weights/config_fields.h"
#include "weights/schemes/scheme.h"

namespace tw {

struct ScaledBytes {
  kernels::WeightFormat format;  // fp8 or int8
  const char* scale_name = "weight_scale";
  // Extents of a block; 0 without blocks, where the scale's shape tells what it belongs to.
  int64_t block_rows = 0;
  int64_t block_columns = 0;
};

std::unique_ptr<const Scheme> make_scaled_bytes_scheme(const ScaledBytes& layout);

// Reads the extents of blocks from a field that is a list of two, [128, 128]; columns must come in
// whole groups of the fp8 format. An absent field leaves them 0.
Status read_block_size(ConfigFields& fields, const char* field, ScaledBytes& layout);

}  // namespace tw
