// What the schemes of 4-bit groups share: a row of quants, scales and zero points, however the
// checkpoint laid it out, on its way into a panel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/thread_team.h"
#include "weights/checkpoint.h"
#include "weights/schemes/channel_writer.h"

namespace tw {

// One output channel. Groups are the checkpoint's, equally large; those of the packed format, which
// may be smaller, repeat their values.
struct GroupedRow {
  std::vector<uint8_t> quants;  // [columns], 0 to 15, in the order in which they are packed
  std::vector<float> scales;    // [groups]
  // [groups], 0 to 16; only for formats with zero points of their own.
  std::vector<uint8_t> zero_points;
};

// Scales are packed as f16. Where the channel has an output scale, the power of two that brings the
// largest scale to f16's top is taken out of all of them, so that scales down to 2^-28 of the
// largest keep all their bits (of bf16, e4m3 and e8m0 sources), and smaller ones are rounded to
// multiples of 2^-39 of the largest. Sources with more bits than f16 are rounded to its 11.
void write_row(const GroupedRow& row, kernels::WeightFormat format, const ChannelWriter& channel);

// The scales of a matrix, in a tensor of f16, bf16, f32, e4m3, or e8m0 (bytes that are exponents of
// two with a bias of 127).
class ScaleTensor {
 public:
  // `shape`: what the tensor must have. A scale that is infinite or no number is an error.
  // `elements`: those that are looked at, if not all.
  static Expected<ScaleTensor> open(const Checkpoint& checkpoint, const std::string& name,
                                    const std::vector<int64_t>& shape,
                                    std::span<const StorageType> types,
                                    std::optional<Range> elements = std::nullopt);

  const StoredTensor& tensor() const { return *tensor_; }
  float at(int64_t index) const;  // of the whole tensor
  // Whether f16 holds `factor` times each scale exactly: then no output scales are needed.
  bool fits_f16(float factor = 1.0f) const;

 private:
  ScaleTensor(const StoredTensor& tensor, Range elements) : tensor_(&tensor), elements_(elements) {}

  const StoredTensor* tensor_;
  Range elements_;
};

// Float types that checkpoints of integer weights have their scales in.
inline constexpr StorageType kFloatScales[] = {StorageType::f16, StorageType::bf16,
                                               StorageType::f32};

// Number of groups along `columns`; `group_size` -1 means all of them. An error, naming `module`
// and what is valid, unless it divides the columns and is a multiple of `multiple` (or takes them
// all).
Expected<int64_t> count_groups(const Checkpoint& checkpoint, const std::string& module,
                               int64_t group_size, int64_t columns, int64_t multiple);

// Columns sorted by their group, from g_idx [columns] (int32): act-order. Empty if they are in
// order anyway. Groups must be of one size.
Expected<std::vector<int32_t>> order_by_group(const Checkpoint& checkpoint,
                                              const StoredTensor& g_idx, int64_t num_groups);

// quants[i] = quants[order[i]]; an empty order leaves them.
void apply_order(std::span<const int32_t> order, std::vector<uint8_t>& quants);

// A tensor of this name, type and shape.
Expected<const StoredTensor*> require_tensor(const Checkpoint& checkpoint, const std::string& name,
                                             StorageType type, const std::vector<int64_t>& shape);

// Whether a quantized checkpoint left this layer in floats: it has "<module>.weight" and not the
// tensor that every quantized layer has.
bool is_left_plain(const Checkpoint& checkpoint, const std::string& module,
                   const std::string& quantized_tensor);

// Word `index` of a tensor of int32.
uint32_t word_at(const StoredTensor& tensor, int64_t index);

// Nibble `i` (0 to 7) of a word, the lowest first.
constexpr uint8_t nibble_at(uint32_t word, int64_t i) {
  return static_cast<uint8_t>((word >> (4 * i)) & 15u);
}

// Whether all words are this one.
bool all_words_are(const StoredTensor& tensor, uint32_t word);

}  // namespace tw
