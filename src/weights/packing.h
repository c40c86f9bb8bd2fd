// Stored matrices -> packed weights: once, at load, straight from the mapped file.
//
// Packing is exact: a packed quantized weight stands for the same number, bit for bit, that the
// format's definition gives. f32 and f16 sources are rounded to bf16.
#pragma once

#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "core/thread_team.h"
#include "kernels/gemm/packed_weight.h"
#include "weights/schemes/scheme.h"

namespace tw {

// Packs the rows of several matrices of the same format, number and order of columns below each
// other, as one weight. A scale that is infinite or no number is corrupt_data, naming the tensor.
Expected<kernels::PackedWeight> pack(std::span<const StoredMatrix* const> matrices,
                                     ThreadTeam& team);

// Many matrices, such as those of experts, each as a weight of its own. They lie in one buffer: the
// system allows but some ten thousand of them.
struct PackedWeights {
  Buffer memory;
  std::vector<kernels::PackedWeight> weights;  // in the order of the matrices
};
Expected<PackedWeights> pack_each(std::span<const StoredMatrix* const> matrices, ThreadTeam& team);

}  // namespace tw
