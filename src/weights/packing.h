// Stored tensors -> packed weights: once, at load, straight from the mapped blocks.
//
// Packing is exact: a packed quantized weight stands for the same number, bit for bit, that the
// block's definition gives. f32 and f16 sources are rounded to bf16.
#pragma once

#include <span>

#include "core/status.h"
#include "core/thread_team.h"
#include "kernels/gemm/packed_weight.h"
#include "weights/checkpoint.h"

namespace tw {

// The compute format that a stored type is packed as; unsupported for integer types.
Expected<kernels::WeightFormat> packed_format(const StoredTensor& tensor);

// Packs the rows of several matrices of the same format and number of columns below each other,
// as one weight. Rows come in Hugging Face's order, whatever the file's. A block whose scale is
// infinite or no number is corrupt_data, naming the tensor.
Expected<kernels::PackedWeight> pack(std::span<const StoredTensor* const> tensors,
                                     ThreadTeam& team);

}  // namespace tw
