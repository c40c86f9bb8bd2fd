#include "weights/safetensors_writer.h"

#include <fstream>
#include <vector>

#include "core/check.h"
#include "core/dtype.h"
#include "weights/header_json.h"

namespace tw {
namespace {

namespace fs = std::filesystem;
using Shard = std::vector<const SafetensorsPart*>;

// A scalar (no dimensions) is a row of one element.
int64_t num_columns(const StoredTensor& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape.back();
}

int64_t num_rows(const StoredTensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

class Bf16Part final : public SafetensorsPart {
 public:
  explicit Bf16Part(const StoredTensor& tensor)
      : SafetensorsPart({{tensor.name, StorageType::bf16, tensor.shape}}), tensor_(tensor) {}

  // A bias of interleaved heads is one row of a vector: its elements are what is in another order.
  Status write(std::ostream& file) const override {
    const bool is_vector = tensor_.shape.size() <= 1;
    const int64_t columns = num_columns(tensor_), rows = num_rows(tensor_);
    const StorageTypeTraits& t = traits(tensor_.type);
    const int64_t row_bytes = columns / t.block_elements * t.block_bytes;
    std::vector<float> values(static_cast<size_t>(columns));
    std::vector<bf16_t> rounded(values.size());
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t stored = is_vector ? 0 : tensor_.row_order.stored_row(row, rows);
      dequantize(tensor_.type, tensor_.data.data() + stored * row_bytes, columns, values.data());
      for (int64_t i = 0; i < columns; ++i) {
        const int64_t source = is_vector ? tensor_.row_order.stored_row(i, columns) : i;
        rounded[static_cast<size_t>(i)] = to_bf16(values[static_cast<size_t>(source)]);
      }
      file.write(reinterpret_cast<const char*>(rounded.data()),
                 static_cast<std::streamsize>(rounded.size() * sizeof(bf16_t)));
    }
    return {};
  }

 private:
  const StoredTensor& tensor_;
};

class CopiedPart final : public SafetensorsPart {
 public:
  explicit CopiedPart(const StoredTensor& tensor)
      : SafetensorsPart({{tensor.name, tensor.type, tensor.shape}}), tensor_(tensor) {
    TW_CHECK(traits(tensor.type).block_elements == 1 && tensor.row_order.interleaved_heads == 0);
  }

  Status write(std::ostream& file) const override {
    file.write(reinterpret_cast<const char*>(tensor_.data.data()),
               static_cast<std::streamsize>(tensor_.data.size()));
    return {};
  }

 private:
  const StoredTensor& tensor_;
};

std::vector<Shard> divide(const SafetensorsParts& parts, uint64_t max_bytes) {
  std::vector<Shard> shards(1);
  uint64_t bytes = 0;
  for (const auto& part : parts) {
    const uint64_t size = part->bytes();
    if (bytes > 0 && bytes + size > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(part.get());
    bytes += size;
  }
  return shards;
}

std::string header_of(const Shard& shard) {
  HeaderJson header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const SafetensorsPart* part : shard) {
    for (const WrittenTensor& tensor : part->tensors()) {
      const uint64_t end = offset + tensor.bytes();
      // The format's names of types are those of the traits.
      header[tensor.name] = {{"dtype", traits(tensor.type).name},
                             {"shape", tensor.shape},
                             {"data_offsets", {offset, end}}};
      offset = end;
    }
  }
  std::string text = dump_header_json(header);
  // The data begins at a multiple of 8; spaces are allowed behind the header.
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

Status write_shard(const fs::path& path, const Shard& shard,
                   const SafetensorsWriteOptions& options) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const std::string header = header_of(shard);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << header;
  for (const SafetensorsPart* part : shard) {
    if (!file) break;
    if (Status status = part->write(file); !status) return status;
    if (options.on_progress) options.on_progress(static_cast<int64_t>(part->bytes()));
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
    for (const SafetensorsPart* part : shards[i]) {
      for (const WrittenTensor& tensor : part->tensors()) map[tensor.name] = names[i];
      total += part->bytes();
    }
  }
  std::ofstream file(folder / "model.safetensors.index.json");
  file << dump_header_json({{"metadata", {{"total_size", total}}}, {"weight_map", map}}, 2) << "\n";
  file.close();
  if (!file) return error(ErrorCode::internal, "{}: cannot write the index", folder.string());
  return {};
}

}  // namespace

uint64_t WrittenTensor::bytes() const {
  auto bytes = static_cast<uint64_t>(traits(type).block_bytes);
  for (const int64_t dimension : shape) bytes *= static_cast<uint64_t>(dimension);
  return bytes;
}

uint64_t SafetensorsPart::bytes() const {
  uint64_t sum = 0;
  for (const WrittenTensor& tensor : tensors_) sum += tensor.bytes();
  return sum;
}

Expected<std::unique_ptr<SafetensorsPart>> make_bf16_part(const StoredTensor& tensor) {
  if (is_float(tensor.type)) return std::make_unique<Bf16Part>(tensor);
  return error(ErrorCode::unsupported, "tensor {} has type {}, which bf16 cannot stand for",
               tensor.name, traits(tensor.type).name);
}

std::unique_ptr<SafetensorsPart> make_copied_part(const StoredTensor& tensor) {
  return std::make_unique<CopiedPart>(tensor);
}

Status write_safetensors(const fs::path& folder, const SafetensorsParts& parts,
                         const SafetensorsWriteOptions& options) {
  const std::vector<Shard> shards = divide(parts, options.max_shard_bytes);
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
