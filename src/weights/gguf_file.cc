#include "weights/gguf_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "weights/byte_reader.h"

namespace tw {
namespace {

constexpr uint64_t kMaxTensors = 1u << 20;
constexpr uint64_t kMaxKeys = 1u << 16;
constexpr int kMaxDimensions = 4;
constexpr int kMaxArrayDepth = 4;

enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// ggml's type numbers that this engine reads.
std::optional<StorageType> storage_type(uint32_t ggml_type) {
  switch (ggml_type) {
    case 0:
      return StorageType::f32;
    case 1:
      return StorageType::f16;
    case 2:
      return StorageType::q4_0;
    case 3:
      return StorageType::q4_1;
    case 6:
      return StorageType::q5_0;
    case 7:
      return StorageType::q5_1;
    case 8:
      return StorageType::q8_0;
    case 12:
      return StorageType::q4_k;
    case 13:
      return StorageType::q5_k;
    case 14:
      return StorageType::q6_k;
    case 24:
      return StorageType::i8;
    case 25:
      return StorageType::i16;
    case 26:
      return StorageType::i32;
    case 27:
      return StorageType::i64;
    case 28:
      return StorageType::f64;
    case 30:
      return StorageType::bf16;
    case 39:
      return StorageType::mxfp4;
    default:
      return std::nullopt;
  }
}

// ggml's names of the types that this engine does not read, for the message.
const char* unread_type_name(uint32_t ggml_type) {
  struct Row {
    uint32_t number;
    const char* name;
  };
  static constexpr Row kRows[] = {
      {9, "Q8_1"},    {10, "Q2_K"},    {11, "Q3_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"},
      {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
      {22, "IQ2_S"},  {23, "IQ4_XS"},  {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},
  };
  for (const Row& row : kRows) {
    if (row.number == ggml_type) return row.name;
  }
  return "unknown";
}

template <typename T, typename Stored>
std::optional<GgufValue> read_number(ByteReader& reader) {
  const auto value = reader.number<T>();
  if (!value) return std::nullopt;
  return GgufValue(static_cast<Stored>(*value));
}

std::optional<GgufValue> read_value(ByteReader& reader, uint32_t type, int depth);

std::optional<GgufValue> read_array(ByteReader& reader, int depth) {
  if (depth >= kMaxArrayDepth) return std::nullopt;
  const auto type = reader.number<uint32_t>();
  const auto count = reader.number<uint64_t>();
  // Every item takes at least a byte: a lying count ends here, before memory is taken for it.
  if (!type || !count || *count > reader.remaining()) return std::nullopt;
  auto array = std::make_shared<GgufArray>();
  for (uint64_t i = 0; i < *count; ++i) {
    auto item = read_value(reader, *type, depth + 1);
    if (!item) return std::nullopt;
    array->items.push_back(std::move(*item));
  }
  return GgufValue(std::move(array));
}

std::optional<GgufValue> read_value(ByteReader& reader, uint32_t type, int depth) {
  switch (type) {
    case kUint8:
      return read_number<uint8_t, uint64_t>(reader);
    case kInt8:
      return read_number<int8_t, int64_t>(reader);
    case kUint16:
      return read_number<uint16_t, uint64_t>(reader);
    case kInt16:
      return read_number<int16_t, int64_t>(reader);
    case kUint32:
      return read_number<uint32_t, uint64_t>(reader);
    case kInt32:
      return read_number<int32_t, int64_t>(reader);
    case kFloat32:
      return read_number<float, double>(reader);
    case kUint64:
      return read_number<uint64_t, uint64_t>(reader);
    case kInt64:
      return read_number<int64_t, int64_t>(reader);
    case kFloat64:
      return read_number<double, double>(reader);
    case kBool: {
      const auto value = reader.number<uint8_t>();
      if (!value || *value > 1) return std::nullopt;
      return GgufValue(*value == 1);
    }
    case kString: {
      const auto value = reader.string();
      if (!value) return std::nullopt;
      return GgufValue(*value);
    }
    case kArray:
      return read_array(reader, depth);
    default:
      return std::nullopt;
  }
}

struct TensorHeader {
  std::string name;
  StorageType type = StorageType::f32;
  std::vector<int64_t> shape;  // outermost first
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The name of a tensor whose bytes another one has too, if there is any.
std::optional<std::string> find_overlap(const std::vector<StoredTensor>& tensors) {
  std::vector<const StoredTensor*> by_place;
  for (const StoredTensor& tensor : tensors) by_place.push_back(&tensor);
  std::sort(by_place.begin(), by_place.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->data.data() < b->data.data();
  });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const auto before = by_place[i - 1]->data;
    if (before.data() + before.size() > by_place[i]->data.data()) return by_place[i]->name;
  }
  return std::nullopt;
}

// Elements and bytes of a tensor; an error names what cannot be.
Status measure(const std::string& file, TensorHeader& tensor) {
  const StorageTypeTraits& t = traits(tensor.type);
  uint64_t elements = 1;
  for (int64_t dimension : tensor.shape) {
    if (dimension <= 0 ||
        __builtin_mul_overflow(elements, static_cast<uint64_t>(dimension), &elements) ||
        elements > (uint64_t{1} << 48)) {
      return error(ErrorCode::corrupt_data, "{}: tensor {} has an impossible shape [{}]", file,
                   tensor.name, fmt::join(tensor.shape, ", "));
    }
  }
  if (tensor.shape.back() % t.block_elements != 0) {
    return error(ErrorCode::corrupt_data,
                 "{}: tensor {} has rows of {} elements, not a multiple of {}'s block of {}", file,
                 tensor.name, tensor.shape.back(), t.name, t.block_elements);
  }
  tensor.bytes =
      elements / static_cast<uint64_t>(t.block_elements) * static_cast<uint64_t>(t.block_bytes);
  return {};
}

Expected<TensorHeader> read_tensor_header(ByteReader& reader, const std::string& file) {
  const auto truncated = [&] {
    return error(ErrorCode::corrupt_data, "{}: truncated in the list of tensors", file);
  };
  TensorHeader tensor;
  const auto name = reader.string();
  const auto num_dimensions = reader.number<uint32_t>();
  if (!name || !num_dimensions) return truncated();
  tensor.name = *name;
  if (*num_dimensions < 1 || *num_dimensions > kMaxDimensions) {
    return error(ErrorCode::corrupt_data, "{}: tensor {} has {} dimensions, expected 1 to {}", file,
                 tensor.name, *num_dimensions, kMaxDimensions);
  }
  for (uint32_t i = 0; i < *num_dimensions; ++i) {
    const auto dimension = reader.number<uint64_t>();
    if (!dimension) return truncated();
    const bool fits = *dimension <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    // GGUF writes the innermost dimension first.
    tensor.shape.insert(tensor.shape.begin(), fits ? static_cast<int64_t>(*dimension) : -1);
  }
  const auto type = reader.number<uint32_t>();
  const auto offset = reader.number<uint64_t>();
  if (!type || !offset) return truncated();
  const auto known = storage_type(*type);
  if (!known) {
    return error(ErrorCode::unsupported,
                 "{}: tensor {} has ggml type {} ({}); supported are F32, F16, BF16, Q8_0, Q4_0, "
                 "Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4",
                 file, tensor.name, *type, unread_type_name(*type));
  }
  tensor.type = *known;
  tensor.offset = *offset;
  if (Status status = measure(file, tensor); !status) return forward_error(status);
  return tensor;
}

}  // namespace

std::optional<int64_t> as_integer(const GgufValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(*number);
  }
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  return std::nullopt;
}

std::optional<double> as_number(const GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto integer = as_integer(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

Expected<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return forward_error(mapped);
  GgufFile gguf;
  gguf.file_ = std::move(*mapped);
  const std::string file = path.string();
  const auto bytes = gguf.file_.bytes();
  ByteReader reader(bytes);
  const auto corrupt = [&](const std::string& what) {
    return error(ErrorCode::corrupt_data, "{}: {}", file, what);
  };

  const auto magic = reader.take(4);
  if (!magic || std::memcmp(magic->data(), "GGUF", 4) != 0) {
    return corrupt("not a GGUF file (it does not begin with \"GGUF\")");
  }
  const auto version = reader.number<uint32_t>();
  const auto num_tensors = reader.number<uint64_t>();
  const auto num_keys = reader.number<uint64_t>();
  if (!version || !num_tensors || !num_keys) return corrupt("truncated in the header");
  if (*version == __builtin_bswap32(2) || *version == __builtin_bswap32(3)) {
    return error(ErrorCode::unsupported, "{}: big-endian GGUF; only little-endian files are read",
                 file);
  }
  if (*version != 2 && *version != 3) {
    return error(ErrorCode::unsupported, "{}: GGUF version {}; supported are 2 and 3", file,
                 *version);
  }
  gguf.version_ = *version;
  if (*num_tensors > kMaxTensors || *num_keys > kMaxKeys) {
    return corrupt(fmt::format("header claims {} tensors and {} keys; at most {} and {} are valid",
                               *num_tensors, *num_keys, kMaxTensors, kMaxKeys));
  }
  for (uint64_t i = 0; i < *num_keys; ++i) {
    const auto key = reader.string();
    const auto type = key ? reader.number<uint32_t>() : std::nullopt;
    if (!key || !type) return corrupt("truncated in the metadata");
    auto value = read_value(reader, *type, 0);
    if (!value) {
      return corrupt(
          fmt::format("metadata key {} (type {}) is truncated or malformed", *key, *type));
    }
    if (!gguf.metadata_.emplace(std::string(*key), std::move(*value)).second) {
      return corrupt(fmt::format("metadata key {} appears twice", *key));
    }
  }

  std::vector<TensorHeader> headers;
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < *num_tensors; ++i) {
    auto header = read_tensor_header(reader, file);
    if (!header) return forward_error(header);
    headers.push_back(std::move(*header));
  }
  for (const TensorHeader& header : headers) {
    if (!names.insert(header.name).second) {
      return corrupt(fmt::format("tensor {} appears twice", header.name));
    }
  }

  int64_t alignment = 32;
  if (const GgufValue* stated = gguf.find("general.alignment")) {
    alignment = as_integer(*stated).value_or(-1);
  }
  if (alignment < 8 || alignment > (1 << 20) || alignment % 8 != 0) {
    return corrupt(fmt::format("general.alignment {} is no multiple of 8 up to 1 MiB", alignment));
  }
  const auto align = static_cast<uint64_t>(alignment);
  const uint64_t data_begin = (reader.position() + align - 1) / align * align;
  for (TensorHeader& header : headers) {
    uint64_t begin = 0, end = 0;
    if (header.offset % align != 0 || __builtin_add_overflow(data_begin, header.offset, &begin) ||
        __builtin_add_overflow(begin, header.bytes, &end) || end > bytes.size()) {
      return corrupt(
          fmt::format("tensor {} ({} bytes at offset {}) lies outside the file of {} "
                      "bytes, or is misaligned",
                      header.name, header.bytes, header.offset, bytes.size()));
    }
    gguf.tensors_.push_back({std::move(header.name), header.type, std::move(header.shape),
                             bytes.subspan(begin, header.bytes)});
  }
  if (const auto name = find_overlap(gguf.tensors_)) {
    return corrupt(fmt::format("tensor {} overlaps another", *name));
  }
  return gguf;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  return value == nullptr ? std::nullopt : as_integer(*value);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  return value == nullptr ? std::nullopt : as_number(*value);
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  const bool* held = value == nullptr ? nullptr : std::get_if<bool>(value);
  return held == nullptr ? std::nullopt : std::optional(*held);
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* held = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
  return held == nullptr ? std::nullopt : std::optional(*held);
}

const GgufArray* GgufFile::array(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* held = value == nullptr ? nullptr : std::get_if<std::shared_ptr<GgufArray>>(value);
  return held == nullptr ? nullptr : held->get();
}

}  // namespace tw
