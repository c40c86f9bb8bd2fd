#include "weights/packing.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace tw {
namespace {

using kernels::kTileN;
using kernels::PackedWeight;

// Returns the first matrix with a scale that is no number, or null.
const StoredMatrix* pack_panels(std::span<const StoredMatrix* const> matrices, PackedWeight& weight,
                                std::span<float> output_scales, Range panels) {
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    std::byte* panel = weight.panel(p);
    // Padding channels and the padded end of K are zeros.
    std::memset(panel, 0, static_cast<size_t>(weight.layout().size));
    int64_t first_row = 0;
    for (const StoredMatrix* matrix : matrices) {
      const int64_t begin = std::max(p * kTileN, first_row);
      const int64_t end = std::min((p + 1) * kTileN, first_row + matrix->rows());
      bool all_finite = true;
      for (int64_t n = begin; n < end; ++n) {
        float* output_scale =
            matrix->has_output_scales() ? &output_scales[static_cast<size_t>(n)] : nullptr;
        matrix->pack_row(n - first_row, {panel, static_cast<int>(n % kTileN), weight.layout(),
                                         all_finite, output_scale});
      }
      if (!all_finite) return matrix;
      first_row += matrix->rows();
    }
  }
  return nullptr;
}

}  // namespace

Expected<PackedWeight> pack(std::span<const StoredMatrix* const> matrices, ThreadTeam& team) {
  TW_CHECK(!matrices.empty());
  const StoredMatrix& first = *matrices.front();
  int64_t num_rows = 0;
  bool has_output_scales = false;
  for (const StoredMatrix* matrix : matrices) {
    TW_CHECK(matrix->columns() == first.columns() && matrix->format() == first.format());
    TW_CHECK(std::ranges::equal(matrix->input_order(), first.input_order()));
    num_rows += matrix->rows();
    if (matrix->has_output_scales()) has_output_scales = true;
  }
  auto weight = PackedWeight::allocate(first.format(), num_rows, first.columns());
  if (!weight) return forward_error(weight);
  std::vector<float> output_scales(has_output_scales ? static_cast<size_t>(num_rows) : 0, 1.0f);
  std::vector<const StoredMatrix*> broken(static_cast<size_t>(team.size()));
  team.run([&](const TeamMember& member) {
    broken[static_cast<size_t>(member.rank())] =
        pack_panels(matrices, *weight, output_scales, member.share(weight->num_panels()));
  });
  for (const StoredMatrix* matrix : broken) {
    if (matrix == nullptr) continue;
    return error(ErrorCode::corrupt_data,
                 "tensor {} ({}) has a scale that is infinite or no number", matrix->name(),
                 traits(matrix->tensors().front()->type).name);
  }
  weight->set_output_scales(output_scales);
  return weight;
}

}  // namespace tw
