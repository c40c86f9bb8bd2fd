#include "weights/schemes/plain.h"

#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "weights/schemes/gguf_mxfp4.h"

namespace tw {
namespace {

using kernels::kSuperGroup;
using kernels::WeightFormat;

// Each packs one row of `k` weights.
using PackRow = void (*)(const std::byte* row, int64_t k, const ChannelWriter& channel);

template <typename Read>
void pack_bf16_row(int64_t k, const ChannelWriter& channel, Read read) {
  for (int64_t i = 0; i < k; ++i) {
    channel.set_bf16(i, read(i).bits);
  }
}

void pack_from_bf16(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  pack_bf16_row(k, channel, [row](int64_t i) {
    bf16_t value;
    std::memcpy(&value, row + 2 * i, sizeof(value));
    return value;
  });
}

void pack_from_f16(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  pack_bf16_row(k, channel, [row](int64_t i) {
    f16_t value;
    std::memcpy(&value, row + 2 * i, sizeof(value));
    return to_bf16(to_float(value));
  });
}

void pack_from_f32(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  pack_bf16_row(k, channel, [row](int64_t i) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof(value));
    return to_bf16(value);
  });
}

// Blocks of 32 nibbles are stored as they are packed: byte i holds elements i and i + 16.
template <int block_bytes, bool has_minimum>
void pack_nibble_blocks(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  constexpr int header = has_minimum ? 4 : 2;
  for (int64_t group = 0; group < k / 32; ++group, row += block_bytes) {
    channel.set_scale(group, row);
    if constexpr (has_minimum) channel.set_minimum(group, row + 2);
    for (int i = 0; i < 16; ++i) channel.set_nibbles(group * 32 + i, row[header + i]);
  }
}

void pack_q8_0(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  for (int64_t group = 0; group < k / 32; ++group, row += 34) {
    channel.set_scale(group, row);
    for (int i = 0; i < 32; ++i) {
      channel.set_quant8(group * 32 + i, std::to_integer<int>(row[2 + i]));
    }
  }
}

template <bool has_minimum>
void pack_q5(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  constexpr int header = has_minimum ? 4 : 2;
  constexpr int zero_point = has_minimum ? 0 : 16;
  for (int64_t group = 0; group < k / 32; ++group, row += header + 20) {
    channel.set_scale(group, row);
    if constexpr (has_minimum) channel.set_minimum(group, row + 2);
    uint32_t high;
    std::memcpy(&high, row + header, sizeof(high));
    for (int i = 0; i < 32; ++i) {
      const int byte = std::to_integer<int>(row[header + 4 + i % 16]);
      const int low = i < 16 ? byte & 15 : byte >> 4;
      channel.set_quant8(group * 32 + i,
                         (low | static_cast<int>((high >> i) & 1u) << 4) - zero_point);
    }
  }
}

void pack_k_scales(const std::byte* block, int64_t super_group, const ChannelWriter& channel) {
  channel.set_super_scale(super_group, block);
  channel.set_negated_super_minimum(super_group, block + 2);
  for (int group = 0; group < 8; ++group) {
    const KGroupScale s = k_group_scale(block + 4, group);
    channel.set_multiplier(super_group * 8 + group, s.scale);
    channel.set_minimum_multiplier(super_group * 8 + group, s.minimum);
  }
}

void pack_q4_k(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  for (int64_t block = 0; block < k / kSuperGroup; ++block, row += 144) {
    pack_k_scales(row, block, channel);
    for (int group = 0; group < 8; ++group) {
      const std::byte* nibbles = row + 16 + group / 2 * 32;
      const auto quant = [&](int i) {
        return group % 2 == 0 ? nibbles[i] & std::byte{15} : nibbles[i] >> 4;
      };
      for (int i = 0; i < 16; ++i) {
        channel.set_nibbles(block * kSuperGroup + group * 32 + i, quant(i) | quant(i + 16) << 4);
      }
    }
  }
}

void pack_q5_k(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  for (int64_t block = 0; block < k / kSuperGroup; ++block, row += 176) {
    pack_k_scales(row, block, channel);
    for (int group = 0; group < 8; ++group) {
      for (int i = 0; i < 32; ++i) {
        const int byte = std::to_integer<int>(row[48 + group / 2 * 32 + i]);
        const int low = group % 2 == 0 ? byte & 15 : byte >> 4;
        const int high = (std::to_integer<int>(row[16 + i]) >> group) & 1;
        channel.set_quant8(block * kSuperGroup + group * 32 + i, low | high << 4);
      }
    }
  }
}

void pack_q6_k(const std::byte* row, int64_t k, const ChannelWriter& channel) {
  for (int64_t block = 0; block < k / kSuperGroup; ++block, row += 210) {
    channel.set_super_scale(block, row + 208);
    for (int group = 0; group < 16; ++group) {
      channel.set_multiplier(block * 16 + group, std::to_integer<int>(row[192 + group]));
    }
    for (int i = 0; i < kSuperGroup; ++i) {
      channel.set_quant8(block * kSuperGroup + i, q6_k_quant(row, i));
    }
  }
}

struct Packer {
  StorageType type;
  WeightFormat format;
  PackRow pack_row;
};

constexpr Packer kPackers[] = {
    {StorageType::bf16, WeightFormat::bf16, pack_from_bf16},
    {StorageType::f16, WeightFormat::bf16, pack_from_f16},
    {StorageType::f32, WeightFormat::bf16, pack_from_f32},
    {StorageType::q4_0, WeightFormat::q4_0, pack_nibble_blocks<18, false>},
    {StorageType::q4_1, WeightFormat::q4_1, pack_nibble_blocks<20, true>},
    {StorageType::q4_k, WeightFormat::q4_k, pack_q4_k},
    {StorageType::q8_0, WeightFormat::q8_0, pack_q8_0},
    {StorageType::q5_0, WeightFormat::q8_0, pack_q5<false>},
    {StorageType::q5_1, WeightFormat::q8_1, pack_q5<true>},
    {StorageType::q5_k, WeightFormat::q8_k, pack_q5_k},
    {StorageType::q6_k, WeightFormat::q8_k16, pack_q6_k},
};

const Packer* find_packer(StorageType type) {
  const auto* found = std::find_if(std::begin(kPackers), std::end(kPackers),
                                   [type](const Packer& packer) { return packer.type == type; });
  return found == std::end(kPackers) ? nullptr : found;
}

class PlainMatrix final : public StoredMatrix {
 public:
  PlainMatrix(const StoredTensor& tensor, const Packer& packer)
      : StoredMatrix({&tensor}, packer.format, tensor.shape[0], tensor.shape[1]),
        tensor_(tensor),
        pack_row_(packer.pack_row) {
    const StorageTypeTraits& t = traits(tensor.type);
    row_bytes_ = columns() / t.block_elements * t.block_bytes;
  }

  void pack_row(int64_t row, const ChannelWriter& channel) const override {
    const int64_t stored = tensor_.row_order.stored_row(row, rows());
    pack_row_(tensor_.data.data() + stored * row_bytes_, columns(), channel);
  }

 private:
  const StoredTensor& tensor_;
  PackRow pack_row_;
  int64_t row_bytes_;
};

class PlainScheme final : public Scheme {
 public:
  Expected<std::unique_ptr<StoredMatrix>> open(const Checkpoint& checkpoint,
                                               const std::string& module, int64_t rows,
                                               int64_t columns) const override {
    return open_plain_matrix(checkpoint, module, rows, columns);
  }
};

}  // namespace

Expected<std::unique_ptr<StoredMatrix>> make_plain_matrix(const StoredTensor& tensor) {
  if (tensor.type == StorageType::mxfp4) return make_gguf_mxfp4_matrix(tensor);
  if (const Packer* packer = find_packer(tensor.type)) {
    return std::make_unique<PlainMatrix>(tensor, *packer);
  }
  return error(ErrorCode::unsupported, "tensor {} has type {}, which no linear layer can use",
               tensor.name, traits(tensor.type).name);
}

Expected<std::unique_ptr<StoredMatrix>> open_plain_matrix(const Checkpoint& checkpoint,
                                                          const std::string& module, int64_t rows,
                                                          int64_t columns) {
  auto tensor = require_shape(checkpoint, module + ".weight", {rows, columns});
  if (!tensor) return forward_error(tensor);
  auto matrix = make_plain_matrix(**tensor);
  if (!matrix) {
    return error(matrix.error().code, "{}: {}", checkpoint.path().string(), matrix.error().message);
  }
  return matrix;
}

std::unique_ptr<const Scheme> make_plain_scheme() {
  return std::make_unique<PlainScheme>();
}

}  // namespace tw
