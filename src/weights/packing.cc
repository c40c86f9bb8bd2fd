#include "weights/packing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/dtype.h"

namespace tw {
namespace {

using kernels::kSuperGroup;
using kernels::kTileN;
using kernels::PackedWeight;
using kernels::WeightFormat;

// Where one output channel goes: its panel and its place (0..15) in it.
struct Channel {
  std::byte* panel;
  int index;
  const kernels::PanelLayout& layout;
  bool& all_finite;  // cleared by a scale or minimum that is infinite or NaN

  void set_quant8(int64_t k, int quant) const {
    panel[kernels::byte_quant_offset(index, k)] = static_cast<std::byte>(quant);
  }
  // Both nibbles of a byte: k (below 16 in its group of 32) and k + 16.
  void set_nibbles(int64_t k, std::byte nibbles) const {
    panel[kernels::nibble_quant_offset(index, k)] = nibbles;
  }
  void set_scale(int64_t group, const std::byte* f16) const { set_f16(layout.scales, group, f16); }
  void set_minimum(int64_t group, const std::byte* f16) const {
    set_f16(layout.minimums, group, f16);
  }
  void set_multiplier(int64_t group, int value) const {
    panel[layout.scales + group * kTileN + index] = static_cast<std::byte>(value);
  }
  void set_minimum_multiplier(int64_t group, int value) const {
    panel[layout.minimums + group * kTileN + index] = static_cast<std::byte>(value);
  }
  void set_super_scale(int64_t super_group, const std::byte* f16) const {
    set_f16(layout.super_scales, super_group, f16);
  }
  // GGUF subtracts the minimums, packed weights add them.
  void set_negated_super_minimum(int64_t super_group, const std::byte* f16) const {
    const std::byte negated[2] = {f16[0], f16[1] ^ std::byte{0x80}};
    set_f16(layout.super_minimums, super_group, negated);
  }

 private:
  void set_f16(int64_t begin, int64_t group, const std::byte* f16) const {
    std::memcpy(panel + begin + (group * kTileN + index) * 2, f16, 2);
    if ((f16[1] & std::byte{0x7c}) == std::byte{0x7c}) all_finite = false;
  }
};

// Each packs one row of `k` weights.
using PackRow = void (*)(const std::byte* row, int64_t k, const Channel& channel);

template <typename Read>
void pack_bf16_row(int64_t k, const Channel& channel, Read read) {
  for (int64_t i = 0; i < k; ++i) {
    const bf16_t value = read(i);
    std::memcpy(channel.panel + kernels::bf16_offset(channel.index, i), &value, sizeof(value));
  }
}

void pack_from_bf16(const std::byte* row, int64_t k, const Channel& channel) {
  pack_bf16_row(k, channel, [row](int64_t i) {
    bf16_t value;
    std::memcpy(&value, row + 2 * i, sizeof(value));
    return value;
  });
}

void pack_from_f16(const std::byte* row, int64_t k, const Channel& channel) {
  pack_bf16_row(k, channel, [row](int64_t i) {
    f16_t value;
    std::memcpy(&value, row + 2 * i, sizeof(value));
    return to_bf16(to_float(value));
  });
}

void pack_from_f32(const std::byte* row, int64_t k, const Channel& channel) {
  pack_bf16_row(k, channel, [row](int64_t i) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof(value));
    return to_bf16(value);
  });
}

// Blocks of 32 nibbles are stored as they are packed: byte i holds elements i and i + 16.
template <int block_bytes, bool has_minimum>
void pack_nibble_blocks(const std::byte* row, int64_t k, const Channel& channel) {
  constexpr int header = has_minimum ? 4 : 2;
  for (int64_t group = 0; group < k / 32; ++group, row += block_bytes) {
    channel.set_scale(group, row);
    if constexpr (has_minimum) channel.set_minimum(group, row + 2);
    for (int i = 0; i < 16; ++i) channel.set_nibbles(group * 32 + i, row[header + i]);
  }
}

void pack_q8_0(const std::byte* row, int64_t k, const Channel& channel) {
  for (int64_t group = 0; group < k / 32; ++group, row += 34) {
    channel.set_scale(group, row);
    for (int i = 0; i < 32; ++i) {
      channel.set_quant8(group * 32 + i, std::to_integer<int>(row[2 + i]));
    }
  }
}

template <bool has_minimum>
void pack_q5(const std::byte* row, int64_t k, const Channel& channel) {
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

void pack_k_scales(const std::byte* block, int64_t super_group, const Channel& channel) {
  channel.set_super_scale(super_group, block);
  channel.set_negated_super_minimum(super_group, block + 2);
  for (int group = 0; group < 8; ++group) {
    const KGroupScale s = k_group_scale(block + 4, group);
    channel.set_multiplier(super_group * 8 + group, s.scale);
    channel.set_minimum_multiplier(super_group * 8 + group, s.minimum);
  }
}

void pack_q4_k(const std::byte* row, int64_t k, const Channel& channel) {
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

void pack_q5_k(const std::byte* row, int64_t k, const Channel& channel) {
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

void pack_q6_k(const std::byte* row, int64_t k, const Channel& channel) {
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

// One matrix's rows in the weight.
struct Source {
  const StoredTensor* tensor;
  const Packer* packer;
  int64_t first_row;
  int64_t num_rows;
  int64_t row_bytes;
};

// Returns the first tensor with a scale that is no number, or null.
const StoredTensor* pack_panels(std::span<const Source> sources, PackedWeight& weight,
                                Range panels) {
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    std::byte* panel = weight.panel(p);
    // Padding channels and the padded end of K are zeros.
    std::memset(panel, 0, static_cast<size_t>(weight.layout().size));
    for (const Source& source : sources) {
      const int64_t begin = std::max(p * kTileN, source.first_row);
      const int64_t end = std::min((p + 1) * kTileN, source.first_row + source.num_rows);
      bool all_finite = true;
      for (int64_t n = begin; n < end; ++n) {
        const int64_t row =
            source.tensor->row_order.stored_row(n - source.first_row, source.num_rows);
        source.packer->pack_row(source.tensor->data.data() + row * source.row_bytes, weight.k(),
                                {panel, static_cast<int>(n % kTileN), weight.layout(), all_finite});
      }
      if (!all_finite) return source.tensor;
    }
  }
  return nullptr;
}

}  // namespace

Expected<WeightFormat> packed_format(const StoredTensor& tensor) {
  if (const Packer* packer = find_packer(tensor.type)) return packer->format;
  return error(ErrorCode::unsupported, "tensor {} has type {}, which no linear layer can use",
               tensor.name, traits(tensor.type).name);
}

Expected<PackedWeight> pack(std::span<const StoredTensor* const> tensors, ThreadTeam& team) {
  TW_CHECK(!tensors.empty());
  std::vector<Source> sources;
  int64_t num_rows = 0;
  for (const StoredTensor* tensor : tensors) {
    auto format = packed_format(*tensor);
    if (!format) return forward_error(format);
    TW_CHECK(tensor->shape.size() == 2 && tensor->shape[1] == tensors[0]->shape[1]);
    const Packer* packer = find_packer(tensor->type);
    TW_CHECK(sources.empty() || packer->format == sources.front().packer->format);
    const StorageTypeTraits& t = traits(tensor->type);
    sources.push_back({tensor, packer, num_rows, tensor->shape[0],
                       tensor->shape[1] / t.block_elements * t.block_bytes});
    num_rows += tensor->shape[0];
  }
  auto weight =
      PackedWeight::allocate(sources.front().packer->format, num_rows, tensors[0]->shape[1]);
  if (!weight) return forward_error(weight);
  std::vector<const StoredTensor*> broken(static_cast<size_t>(team.size()));
  team.run([&](const TeamMember& member) {
    broken[static_cast<size_t>(member.rank())] =
        pack_panels(sources, *weight, member.share(weight->num_panels()));
  });
  for (const StoredTensor* tensor : broken) {
    if (tensor == nullptr) continue;
    return error(ErrorCode::corrupt_data,
                 "tensor {} ({}) has a scale that is infinite or no number", tensor->name,
                 traits(tensor->type).name);
  }
  return weight;
}

}  // namespace tw
