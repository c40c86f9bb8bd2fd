#include "weights/safetensors_writer.h"

#include <fstream>
#include <vector>

#include "core/dtype.h"
#include "weights/header_json.h"

namespace tw {
namespace {

namespace fs = std::filesystem;
using Shard = std::vector<const StoredTensor*>;

// A scalar (no dimensions) is a row of one element.
int64_t num_columns(const StoredTensor& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape.back();
}

int64_t num_rows(const StoredTensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

std::vector<Shard> divide(std::span<const StoredTensor* const> tensors, uint64_t max_bytes) {
  std::vector<Shard> shards(1);
  uint64_t bytes = 0;
  for (const StoredTensor* tensor : tensors) {
    const uint64_t size = bf16_bytes(*tensor);
    if (bytes > 0 && bytes + size > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += size;
  }
  return shards;
}

std::string header_of(const Shard& shard) {
  HeaderJson header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const StoredTensor* tensor : shard) {
    const uint64_t end = offset + bf16_bytes(*tensor);
    header[tensor->name] = {
        {"dtype", "BF16"}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_header_json(header);
  // The data begins at a multiple of 8; spaces are allowed behind the header.
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// A bias of interleaved heads is one row of a vector: its elements are what is in another order.
void write_tensor(const StoredTensor& tensor, std::ofstream& file) {
  const bool is_vector = tensor.shape.size() <= 1;
  const int64_t columns = num_columns(tensor);
  const int64_t rows = num_rows(tensor);
  const StorageTypeTraits& t = traits(tensor.type);
  const int64_t row_bytes = columns / t.block_elements * t.block_bytes;
  std::vector<float> values(static_cast<size_t>(columns));
  std::vector<bf16_t> rounded(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t stored = is_vector ? 0 : tensor.row_order.stored_row(row, rows);
    dequantize(tensor.type, tensor.data.data() + stored * row_bytes, columns, values.data());
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t source = is_vector ? tensor.row_order.stored_row(i, columns) : i;
      rounded[static_cast<size_t>(i)] = to_bf16(values[static_cast<size_t>(source)]);
    }
    file.write(reinterpret_cast<const char*>(rounded.data()),
               static_cast<std::streamsize>(rounded.size() * sizeof(bf16_t)));
  }
}

Status write_shard(const fs::path& path, const Shard& shard,
                   const SafetensorsWriteOptions& options) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const std::string header = header_of(shard);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header;
  for (const StoredTensor* tensor : shard) {
    if (!file) break;
    write_tensor(*tensor, file);
    if (options.on_progress) options.on_progress(static_cast<int64_t>(bf16_bytes(*tensor)));
  }
  file.close();
  if (!file) return error(ErrorCode::internal, "{}: cannot write", path.string());
  return {};
}

Status write_index(const fs::path& folder, const std::vector<Shard>& shards,
                   const std::vector<std::string>& names) {
  HeaderJson map = HeaderJson::object();
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const StoredTensor* tensor : shards[i]) {
      map[tensor->name] = names[i];
      total += bf16_bytes(*tensor);
    }
  }
  std::ofstream file(folder / "model.safetensors.index.json");
  file << dump_header_json({{"metadata", {{"total_size", total}}}, {"weight_map", map}}, 2) << "\n";
  file.close();
  if (!file) return error(ErrorCode::internal, "{}: cannot write the index", folder.string());
  return {};
}

}  // namespace

uint64_t bf16_bytes(const StoredTensor& tensor) {
  return static_cast<uint64_t>(num_rows(tensor) * num_columns(tensor)) * sizeof(bf16_t);
}

Status write_safetensors(const fs::path& folder, std::span<const StoredTensor* const> tensors,
                         const SafetensorsWriteOptions& options) {
  for (const StoredTensor* tensor : tensors) {
    if (is_float(tensor->type)) continue;
    return error(ErrorCode::unsupported, "tensor {} has type {}, which bf16 cannot stand for",
                 tensor->name, traits(tensor->type).name);
  }
  const std::vector<Shard> shards = divide(tensors, options.max_shard_bytes);
  if (shards.size() == 1) return write_shard(folder / "model.safetensors", shards[0], options);
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(fmt::format("model-{:05d}-of-{:05d}.safetensors", i + 1, shards.size()));
    if (Status status = write_shard(folder / names.back(), shards[i], options); !status) {
      return status;
    }
  }
  return write_index(folder, shards, names);
}

}  // namespace tw
