#include "nn/lora_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "weights/storage_type.h"

namespace tw {
namespace {

using kernels::PackedWeight;

constexpr int64_t kRankAlignment = 32;  // of bf16 weights along K

int64_t pad_rank(int64_t rank) {
  return (rank + kRankAlignment - 1) / kRankAlignment * kRankAlignment;
}

std::vector<float> read_matrix(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]));
  dequantize(tensor.type, tensor.data.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

void write_row(PackedWeight& weight, int64_t row, std::span<const float> values, float scale) {
  std::byte* panel = weight.panel(row / kernels::kTileN);
  const auto channel = static_cast<int>(row % kernels::kTileN);
  for (size_t k = 0; k < values.size(); ++k) {
    const bf16_t value = to_bf16(values[k] * scale);
    std::memcpy(panel + kernels::bf16_offset(channel, static_cast<int64_t>(k)), &value,
                sizeof(value));
  }
}

// The rows of the whole layer that this rank has, in its order.
std::vector<int64_t> own_rows(const LoraLayer& layer) {
  std::vector<int64_t> rows;
  const auto add = [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      rows.push_back(layer.row_order.stored_row(row, layer.output_size));
    }
  };
  if (layer.rows.empty()) add({0, layer.output_size});
  for (const Range& range : layer.rows) add(range);
  return rows;
}

Status check_finite(std::span<const float> values, const LoraCheckpoint& checkpoint,
                    const StoredTensor& tensor) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return {};
  return error(ErrorCode::corrupt_data, "{}: tensor {} holds values that are no numbers",
               checkpoint.path().string(), tensor.name);
}

Expected<LoraWeights> pack_layer(const LoraLayer& layer, const LoraModule& module,
                                 const LoraCheckpoint& checkpoint) {
  const std::vector<float> a = read_matrix(*module.a), b = read_matrix(*module.b);
  for (const auto& [values, tensor] : {std::pair(&a, module.a), std::pair(&b, module.b)}) {
    if (Status status = check_finite(*values, checkpoint, *tensor); !status) {
      return forward_error(status);
    }
  }
  const Range columns = layer.columns.value_or(Range{0, layer.input_size});
  const std::vector<int64_t> rows = own_rows(layer);
  const int64_t padded_rank = pad_rank(module.rank);
  constexpr auto kFormat = kernels::WeightFormat::bf16;
  auto packed_a = PackedWeight::allocate(kFormat, padded_rank, columns.size());
  if (!packed_a) return forward_error(packed_a);
  auto packed_b = PackedWeight::allocate(kFormat, static_cast<int64_t>(rows.size()), padded_rank);
  if (!packed_b) return forward_error(packed_b);
  for (int64_t r = 0; r < module.rank; ++r) {
    const auto row = std::span(a).subspan(static_cast<size_t>(r * layer.input_size),
                                          static_cast<size_t>(layer.input_size));
    write_row(*packed_a, r,
              row.subspan(static_cast<size_t>(columns.begin), static_cast<size_t>(columns.size())),
              1.0f);
  }
  const auto rank = static_cast<size_t>(module.rank);
  for (size_t n = 0; n < rows.size(); ++n) {
    write_row(*packed_b, static_cast<int64_t>(n),
              std::span(b).subspan(static_cast<size_t>(rows[n]) * rank, rank), module.scale);
  }
  return LoraWeights{std::move(*packed_a), std::move(*packed_b)};
}

}  // namespace

size_t LoraAdapter::size_bytes() const {
  size_t bytes = 0;
  for (const auto& layers : ranks) {
    for (const LoraWeights& weights : layers) {
      bytes += weights.a.size_bytes() + weights.b.size_bytes();
    }
  }
  return bytes;
}

int64_t LoraLayer::own_output_size() const {
  if (rows.empty()) return output_size;
  int64_t size = 0;
  for (const Range& range : rows) size += range.size();
  return size;
}

LoraLayers::LoraLayers(const CpuFeatures& features, int64_t max_rank, int32_t shard_rank)
    : kernel_(kernels::select_gemm(kernels::WeightFormat::bf16, kernels::ActivationPrecision::f32,
                                   features)),
      max_rank_(max_rank),
      padded_rank_(pad_rank(max_rank)),
      shard_rank_(shard_rank) {}

size_t LoraLayers::add(LoraLayer layer) {
  layers_.push_back(std::move(layer));
  return layers_.size() - 1;
}

Status LoraLayers::check(const LoraCheckpoint& checkpoint) const {
  const std::string source = checkpoint.path().string();
  for (const auto& [name, module] : checkpoint.modules()) {
    const auto layer = std::ranges::find(layers_, name, &LoraLayer::module);
    if (layer == layers_.end()) {
      return error(ErrorCode::unsupported,
                   "{}: adapts {}, which this model has not, or not as a layer that can be adapted "
                   "(such as {})",
                   source, name, layers_.empty() ? "none" : layers_.front().module);
    }
    if (module.a->shape[1] != layer->input_size || module.b->shape[0] != layer->output_size) {
      return error(ErrorCode::invalid_argument,
                   "{}: {} maps {} to {} values; the model's layer {} to {}", source, name,
                   module.a->shape[1], module.b->shape[0], layer->input_size, layer->output_size);
    }
    if (module.rank > max_rank_) {
      return error(ErrorCode::invalid_argument,
                   "{}: {} has rank {}; at most {} can be loaded (--max-lora-rank)", source, name,
                   module.rank, max_rank_);
    }
  }
  return {};
}

Expected<std::vector<LoraWeights>> LoraLayers::pack(const LoraCheckpoint& checkpoint) const {
  std::vector<LoraWeights> packed(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto module = checkpoint.modules().find(layers_[i].module);
    if (module == checkpoint.modules().end()) continue;
    auto weights = pack_layer(layers_[i], module->second, checkpoint);
    if (!weights) return forward_error(weights);
    packed[i] = std::move(*weights);
  }
  return packed;
}

}  // namespace tw
