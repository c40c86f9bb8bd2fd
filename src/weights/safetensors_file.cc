#include "weights/safetensors_file.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "weights/byte_reader.h"
#include "weights/header_json.h"

namespace tw {
namespace {

constexpr uint64_t kMaxHeader = 100 << 20;  // the reference implementation's limit
constexpr int kMaxDepth = 8;                // the format needs 3

std::optional<StorageType> storage_type(const std::string& dtype) {
  struct Row {
    const char* name;
    StorageType type;
  };
  static constexpr Row kRows[] = {
      {"F32", StorageType::f32},         {"F16", StorageType::f16},
      {"BF16", StorageType::bf16},       {"F64", StorageType::f64},
      {"I8", StorageType::i8},           {"I16", StorageType::i16},
      {"I32", StorageType::i32},         {"I64", StorageType::i64},
      {"U8", StorageType::u8},           {"BOOL", StorageType::boolean},
      {"F8_E4M3", StorageType::f8_e4m3},
  };
  for (const Row& row : kRows) {
    if (dtype == row.name) return row.type;
  }
  return std::nullopt;
}

// The bytes that a shape needs, if that can be.
std::optional<uint64_t> bytes_needed(const std::vector<int64_t>& shape, StorageType type) {
  uint64_t bytes = static_cast<uint64_t>(traits(type).block_bytes);
  for (int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

std::optional<std::vector<int64_t>> integers(const HeaderJson& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> values;
  for (const HeaderJson& item : *found) {
    if (!item.is_number_integer() && !item.is_number_unsigned()) return std::nullopt;
    if (item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return std::nullopt;
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

Expected<StoredTensor> read_entry(const std::string& file, const std::string& name,
                                  const HeaderJson& entry, std::span<const std::byte> data) {
  if (!entry.is_object()) {
    return error(ErrorCode::corrupt_data, "{}: entry of tensor {} is no object", file, name);
  }
  const auto dtype = entry.find("dtype");
  const auto shape = integers(entry, "shape");
  const auto offsets = integers(entry, "data_offsets");
  if (dtype == entry.end() || !dtype->is_string() || !shape || !offsets || offsets->size() != 2) {
    return error(ErrorCode::corrupt_data,
                 "{}: tensor {} needs dtype (string), shape (integers) and data_offsets (two "
                 "integers)",
                 file, name);
  }
  const auto type = storage_type(dtype->get<std::string>());
  if (!type) {
    return error(ErrorCode::unsupported,
                 "{}: tensor {} has dtype {}; supported are F32, F16, BF16, F8_E4M3, F64, BOOL, U8 "
                 "and I8 to I64",
                 file, name, dtype->get<std::string>());
  }
  const int64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data.size()) {
    return error(ErrorCode::corrupt_data,
                 "{}: tensor {} has data_offsets [{}, {}], outside the {} bytes of data", file,
                 name, begin, end, data.size());
  }
  const auto needed = bytes_needed(*shape, *type);
  if (!needed || *needed != static_cast<uint64_t>(end - begin)) {
    return error(ErrorCode::corrupt_data,
                 "{}: tensor {} of type {} and shape [{}] does not take the {} bytes it has", file,
                 name, traits(*type).name, fmt::join(*shape, ", "), end - begin);
  }
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = *type;
  tensor.shape = *shape;
  tensor.data = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  return tensor;
}

}  // namespace

Expected<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return forward_error(mapped);
  SafetensorsFile result;
  result.file_ = std::move(*mapped);
  const std::string file = path.string();
  ByteReader reader(result.file_.bytes());
  const auto length = reader.number<uint64_t>();
  if (!length) return error(ErrorCode::corrupt_data, "{}: shorter than its 8-byte header", file);
  if (*length > kMaxHeader || *length > reader.remaining()) {
    return error(ErrorCode::corrupt_data,
                 "{}: header claims {} bytes; the file has {} behind it, the format allows {}",
                 file, *length, reader.remaining(), kMaxHeader);
  }
  const auto header_bytes = *reader.take(*length);
  const auto data = *reader.take(reader.remaining());
  if (header_bytes.empty() || header_bytes[0] != std::byte{'{'}) {
    return error(ErrorCode::corrupt_data, "{}: header is no JSON object (it must begin with '{{')",
                 file);
  }
  auto header = parse_header_json(
      {reinterpret_cast<const char*>(header_bytes.data()), header_bytes.size()}, file, kMaxDepth);
  if (!header) return forward_error(header);
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    auto tensor = read_entry(file, name, entry, data);
    if (!tensor) return forward_error(tensor);
    result.tensors_.push_back(std::move(*tensor));
  }
  // In the order of the data, each must begin where the one before it ends.
  std::stable_sort(result.tensors_.begin(), result.tensors_.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return a.data.data() != b.data.data() ? a.data.data() < b.data.data()
                                                           : a.data.size() < b.data.size();
                   });
  const std::byte* next = data.data();
  for (const StoredTensor& tensor : result.tensors_) {
    if (tensor.data.data() != next) {
      return error(ErrorCode::corrupt_data, "{}: tensor {} overlaps another or leaves a hole", file,
                   tensor.name);
    }
    next += tensor.data.size();
  }
  if (next != data.data() + data.size()) {
    return error(ErrorCode::corrupt_data, "{}: {} bytes behind the last tensor", file,
                 data.data() + data.size() - next);
  }
  return result;
}

}  // namespace tw
