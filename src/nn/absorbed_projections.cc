#include "nn/absorbed_projections.h"

#include <cstring>

#include "kernels/gemm/unpack.h"
#include "weights/packing.h"
#include "weights/sliced_matrix.h"

namespace tw {
namespace {

using kernels::kTileN;
using kernels::PackedWeight;
using kernels::WeightFormat;

struct HeadSizes {
  int64_t num_heads, nope, value, latent;

  int64_t rows() const { return nope + value; }
};

const float* fp8_scales(const PackedWeight& weight, int64_t row, int64_t group) {
  const std::byte* panel = weight.panel(row / kTileN);
  return reinterpret_cast<const float*>(panel + weight.layout().scales) + group * kTileN +
         row % kTileN;
}

// Whether all rows of each 128 rows of W_UK have the same scales, so that columns have, too.
bool has_square_blocks(const PackedWeight& weight, const HeadSizes& sizes) {
  constexpr int64_t kBlock = 128;
  if (weight.format() != WeightFormat::fp8 || sizes.nope % kBlock != 0) return false;
  for (int64_t head = 0; head < sizes.num_heads; ++head) {
    for (int64_t i = 0; i < sizes.nope; ++i) {
      const int64_t row = head * sizes.rows() + i;
      const int64_t first = row - i % kBlock;
      for (int64_t group = 0; group < weight.padded_k() / kBlock; ++group) {
        if (*fp8_scales(weight, row, group) != *fp8_scales(weight, first, group)) return false;
      }
    }
  }
  return true;
}

// Channel j, position i of head `head` of W_UK^T is row i, column j of its W_UK.
void transpose_fp8(const PackedWeight& weight, const HeadSizes& sizes, int64_t head,
                   PackedWeight& out) {
  for (int64_t j = 0; j < sizes.latent; ++j) {
    const int64_t channel = head * sizes.latent + j;
    std::byte* panel = out.panel(channel / kTileN);
    const auto lane = static_cast<int>(channel % kTileN);
    auto* scales = reinterpret_cast<float*>(panel + out.layout().scales);
    for (int64_t i = 0; i < sizes.nope; ++i) {
      const int64_t row = head * sizes.rows() + i;
      panel[kernels::byte_quant_offset(lane, i)] =
          weight.panel(row / kTileN)[kernels::byte_quant_offset(static_cast<int>(row % kTileN), j)];
      if (i % 128 == 0) scales[i / 128 * kTileN + lane] = *fp8_scales(weight, row, j / 128);
    }
  }
}

void transpose_bf16(const PackedWeight& weight, const HeadSizes& sizes, int64_t head,
                    PackedWeight& out) {
  std::vector<float> row(static_cast<size_t>(sizes.latent));
  for (int64_t i = 0; i < sizes.nope; ++i) {
    kernels::unpack_row(weight, head * sizes.rows() + i, row.data());
    for (int64_t j = 0; j < sizes.latent; ++j) {
      const int64_t channel = head * sizes.latent + j;
      const bf16_t value = to_bf16(row[static_cast<size_t>(j)]);
      std::memcpy(
          out.panel(channel / kTileN) + kernels::bf16_offset(static_cast<int>(channel % kTileN), i),
          &value, sizeof(value));
    }
  }
}

Expected<PackedWeight> transposed_keys(const PackedWeight& weight, const HeadSizes& sizes,
                                       ThreadTeam& team) {
  const bool stays_fp8 = has_square_blocks(weight, sizes);
  auto keys = PackedWeight::allocate(stays_fp8 ? WeightFormat::fp8 : WeightFormat::bf16,
                                     sizes.num_heads * sizes.latent, sizes.nope);
  if (!keys) return keys;
  team.run([&](const TeamMember& member) {
    const Range heads = member.share(sizes.num_heads);
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      (stays_fp8 ? transpose_fp8 : transpose_bf16)(weight, sizes, head, *keys);
    }
  });
  return keys;
}

// Whole panels, as they are.
Expected<PackedWeight> value_rows(const PackedWeight& weight, const HeadSizes& sizes) {
  auto values =
      PackedWeight::allocate(weight.format(), sizes.num_heads * sizes.value, sizes.latent);
  if (!values) return values;
  std::vector<float> output_scales;
  for (int64_t head = 0; head < sizes.num_heads; ++head) {
    const int64_t first = head * sizes.rows() + sizes.nope;
    for (int64_t i = 0; i < sizes.value; i += kTileN) {
      std::memcpy(values->panel((head * sizes.value + i) / kTileN),
                  weight.panel((first + i) / kTileN), static_cast<size_t>(weight.layout().size));
    }
    if (weight.output_scales().empty()) continue;
    const auto scales = weight.output_scales().begin() + first;
    output_scales.insert(output_scales.end(), scales, scales + sizes.value);
  }
  values->set_output_scales(output_scales);
  return values;
}

// Opens, packs and releases the rows of a range of heads.
Expected<PackedWeight> load_heads(const WeightLoader& loader, const std::string& module,
                                  int64_t num_heads, int64_t rows_per_head, int64_t columns,
                                  Range heads) {
  const Checkpoint& checkpoint = loader.checkpoint;
  auto matrix = loader.scheme->open(checkpoint, module, num_heads * rows_per_head, columns);
  if (!matrix) return forward_error(matrix);
  if (heads.size() != num_heads) {
    const Range rows = {heads.begin * rows_per_head, heads.end * rows_per_head};
    *matrix = std::make_unique<SlicedRows>(std::move(*matrix), std::vector<Range>{rows});
  }
  if (!(*matrix)->input_order().empty()) {
    return error(ErrorCode::unsupported,
                 "{}: {} is quantized in another order of columns (act-order), which multi-head "
                 "latent attention can't read",
                 checkpoint.path().string(), module);
  }
  if (loader.checks_only) return PackedWeight();
  const StoredMatrix* const matrices[] = {matrix->get()};
  auto packed = pack(matrices, loader.team);
  if (!packed) {
    return error(packed.error().code, "{}: {}", checkpoint.path().string(), packed.error().message);
  }
  for (const StoredTensor* tensor : (*matrix)->tensors()) {
    if (loader.on_progress) loader.on_progress(static_cast<int64_t>(tensor->data.size()));
    checkpoint.release(*tensor);
  }
  return packed;
}

}  // namespace

Expected<AbsorbedProjections> AbsorbedProjections::load(const WeightLoader& loader,
                                                        const std::string& prefix,
                                                        int32_t num_heads, int64_t nope_dim,
                                                        int64_t value_dim, int64_t latent_dim,
                                                        Range heads) {
  const HeadSizes sizes{heads.size(), nope_dim, value_dim, latent_dim};
  for (const int64_t size : {nope_dim, value_dim, latent_dim}) {
    if (size % kTileN == 0) continue;
    return error(ErrorCode::unsupported,
                 "{}: {}: qk_nope_head_dim {}, v_head_dim {} and kv_lora_rank {} must be multiples "
                 "of {}",
                 loader.checkpoint.path().string(), prefix, nope_dim, value_dim, latent_dim,
                 kTileN);
  }
  const auto load = [&](const char* name, int64_t rows_per_head, int64_t columns) {
    return load_heads(loader, prefix + name, num_heads, rows_per_head, columns, heads);
  };
  Expected<PackedWeight> keys, values;
  if (loader.checkpoint.find(prefix + ".k_b_proj.weight") != nullptr) {
    keys = load(".k_b_proj", latent_dim, nope_dim);
    values = load(".v_b_proj", value_dim, latent_dim);
  } else {
    auto whole = load(".kv_b_proj", sizes.rows(), latent_dim);
    if (!whole) return forward_error(whole);
    if (loader.checks_only) return AbsorbedProjections();
    keys = transposed_keys(*whole, sizes, loader.team);
    values = value_rows(*whole, sizes);
  }
  if (!keys) return forward_error(keys);
  if (!values) return forward_error(values);
  if (loader.checks_only) return AbsorbedProjections();
  const auto count = static_cast<int32_t>(heads.size());
  return AbsorbedProjections{BatchedLinear(std::move(*keys), count, loader),
                             BatchedLinear(std::move(*values), count, loader)};
}

}  // namespace tw
