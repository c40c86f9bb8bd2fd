#include "weights/storage_type.h"

#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/dtype.h"

namespace tw {
namespace {

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

float read_f16(const std::byte* from) {
  return to_float(read<f16_t>(from));
}
int byte_at(const std::byte* from, int64_t index) {
  return std::to_integer<int>(from[index]);
}

// 32 elements from 16 bytes of nibbles: the low ones are elements 0..15, the high ones 16..31.
template <typename Decode>
void for_nibbles(const std::byte* nibbles, Decode decode) {
  for (int i = 0; i < 16; ++i) {
    decode(i, byte_at(nibbles, i) & 15);
    decode(i + 16, byte_at(nibbles, i) >> 4);
  }
}

void decode_q4_0(const std::byte* block, float* out) {
  const float scale = read_f16(block);
  for_nibbles(block + 2, [&](int i, int q) { out[i] = static_cast<float>(q - 8) * scale; });
}

void decode_q4_1(const std::byte* block, float* out) {
  const float scale = read_f16(block), minimum = read_f16(block + 2);
  for_nibbles(block + 4, [&](int i, int q) { out[i] = static_cast<float>(q) * scale + minimum; });
}

// The fifth bits of 32 elements, one each in a 32-bit word.
void decode_q5_0(const std::byte* block, float* out) {
  const float scale = read_f16(block);
  const auto high = read<uint32_t>(block + 2);
  for_nibbles(block + 6, [&](int i, int q) {
    const int quant = q | static_cast<int>((high >> i) & 1u) << 4;
    out[i] = static_cast<float>(quant - 16) * scale;
  });
}

void decode_q5_1(const std::byte* block, float* out) {
  const float scale = read_f16(block), minimum = read_f16(block + 2);
  const auto high = read<uint32_t>(block + 4);
  for_nibbles(block + 8, [&](int i, int q) {
    const int quant = q | static_cast<int>((high >> i) & 1u) << 4;
    out[i] = static_cast<float>(quant) * scale + minimum;
  });
}

void decode_q8_0(const std::byte* block, float* out) {
  const float scale = read_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(read<int8_t>(block + 2 + i)) * scale;
}

void decode_q4_k(const std::byte* block, float* out) {
  const float d = read_f16(block), dmin = read_f16(block + 2);
  const std::byte* nibbles = block + 16;
  for (int group = 0; group < 8; ++group) {
    const KGroupScale s = k_group_scale(block + 4, group);
    const float scale = d * static_cast<float>(s.scale);
    const float minimum = dmin * static_cast<float>(s.minimum);
    for (int i = 0; i < 32; ++i) {
      const int byte = byte_at(nibbles, group / 2 * 32 + i);
      const int q = group % 2 == 0 ? byte & 15 : byte >> 4;
      out[group * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void decode_q5_k(const std::byte* block, float* out) {
  const float d = read_f16(block), dmin = read_f16(block + 2);
  const std::byte* high = block + 16;
  const std::byte* nibbles = block + 48;
  for (int group = 0; group < 8; ++group) {
    const KGroupScale s = k_group_scale(block + 4, group);
    const float scale = d * static_cast<float>(s.scale);
    const float minimum = dmin * static_cast<float>(s.minimum);
    for (int i = 0; i < 32; ++i) {
      const int byte = byte_at(nibbles, group / 2 * 32 + i);
      const int low = group % 2 == 0 ? byte & 15 : byte >> 4;
      const int q = low | ((byte_at(high, i) >> group) & 1) << 4;
      out[group * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void decode_q6_k(const std::byte* block, float* out) {
  const float d = read_f16(block + 208);
  for (int i = 0; i < 256; ++i) {
    const auto scale = read<int8_t>(block + 192 + i / 16);
    out[i] = d * static_cast<float>(scale) * static_cast<float>(q6_k_quant(block, i) - 32);
  }
}

void decode_mxfp4(const std::byte* block, float* out) {
  constexpr float kDoubledE2m1[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float scale = mxfp4_scale(block);
  for (int i = 0; i < 32; ++i) out[i] = kDoubledE2m1[mxfp4_code(block, i)] * scale;
}

template <typename T, typename Convert>
void decode_plain(const std::byte* data, int64_t count, float* out, Convert convert) {
  for (int64_t i = 0; i < count; ++i) out[i] = convert(read<T>(data + i * sizeof(T)));
}

template <typename T>
void decode_number(const std::byte* data, int64_t count, float* out) {
  decode_plain<T>(data, count, out, [](T value) { return static_cast<float>(value); });
}

using DecodeBlock = void (*)(const std::byte* block, float* out);

DecodeBlock block_decoder(StorageType type) {
  switch (type) {
    case StorageType::q8_0:
      return decode_q8_0;
    case StorageType::q4_0:
      return decode_q4_0;
    case StorageType::q4_1:
      return decode_q4_1;
    case StorageType::q5_0:
      return decode_q5_0;
    case StorageType::q5_1:
      return decode_q5_1;
    case StorageType::q4_k:
      return decode_q4_k;
    case StorageType::q5_k:
      return decode_q5_k;
    case StorageType::q6_k:
      return decode_q6_k;
    case StorageType::mxfp4:
      return decode_mxfp4;
    default:
      return nullptr;
  }
}

}  // namespace

KGroupScale k_group_scale(const std::byte* packed, int group) {
  // Groups 0..3 lie in the low 6 bits of bytes 0..3 (scales) and 4..7 (minimums); groups 4..7
  // have their low 4 bits in bytes 8..11 and their high 2 bits on top of bytes 0..7.
  if (group < 4) return {byte_at(packed, group) & 63, byte_at(packed, group + 4) & 63};
  return {(byte_at(packed, group + 4) & 15) | (byte_at(packed, group - 4) >> 6) << 4,
          byte_at(packed, group + 4) >> 4 | (byte_at(packed, group) >> 6) << 4};
}

int q6_k_quant(const std::byte* block, int index) {
  // Halves of 128 elements; in each, four runs of 32 share 64 bytes of low nibbles and 32 bytes
  // that hold the high 2 bits of all four.
  const int half = index / 128, run = index % 128 / 32, i = index % 32;
  const int low_byte = byte_at(block, half * 64 + run % 2 * 32 + i);
  const int low = run < 2 ? low_byte & 15 : low_byte >> 4;
  const int high = (byte_at(block, 128 + half * 32 + i) >> (2 * run)) & 3;
  return low | high << 4;
}

float mxfp4_scale(const std::byte* block) {
  return std::ldexp(1.0f, byte_at(block, 0) - 128);  // a bias of 127, and halves
}

int mxfp4_code(const std::byte* block, int index) {
  const int byte = byte_at(block, 1 + index % 16);
  return index < 16 ? byte & 15 : byte >> 4;
}

const StorageTypeTraits& traits(StorageType type) {
  static constexpr StorageTypeTraits kTraits[] = {
      {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q8_0", 32, 34},
      {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
      {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"MXFP4", 32, 17},
      {"I8", 1, 1},       {"I16", 1, 2},      {"I32", 1, 4},      {"I64", 1, 8},
      {"F64", 1, 8},      {"U8", 1, 1},       {"BOOL", 1, 1},     {"F8_E4M3", 1, 1},
  };
  return kTraits[static_cast<size_t>(type)];
}

bool is_float(StorageType type) {
  switch (type) {
    case StorageType::i8:
    case StorageType::i16:
    case StorageType::i32:
    case StorageType::i64:
    case StorageType::u8:
    case StorageType::boolean:
    case StorageType::f8_e4m3:
      return false;
    default:
      return true;
  }
}

void dequantize(StorageType type, const std::byte* data, int64_t count, float* out) {
  if (const DecodeBlock decode = block_decoder(type)) {
    const StorageTypeTraits& t = traits(type);
    TW_CHECK(count % t.block_elements == 0);
    for (int64_t i = 0; i < count / t.block_elements; ++i) {
      decode(data + i * t.block_bytes, out + i * t.block_elements);
    }
    return;
  }
  switch (type) {
    case StorageType::f32:
      return decode_number<float>(data, count, out);
    case StorageType::f64:
      return decode_number<double>(data, count, out);
    case StorageType::f16:
      return decode_plain<f16_t>(data, count, out, [](f16_t value) { return to_float(value); });
    case StorageType::bf16:
      return decode_plain<bf16_t>(data, count, out, [](bf16_t value) { return to_float(value); });
    case StorageType::f8_e4m3:
      return decode_plain<f8_e4m3_t>(data, count, out,
                                     [](f8_e4m3_t value) { return to_float(value); });
    case StorageType::i8:
      return decode_number<int8_t>(data, count, out);
    case StorageType::i16:
      return decode_number<int16_t>(data, count, out);
    case StorageType::i32:
      return decode_number<int32_t>(data, count, out);
    case StorageType::i64:
      return decode_number<int64_t>(data, count, out);
    case StorageType::u8:
    case StorageType::boolean:
      return decode_number<uint8_t>(data, count, out);
    default:
      TW_CHECK(!"unreachable storage type");
  }
}

}  // namespace tw
