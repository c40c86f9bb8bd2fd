#include "parallel/sum_in_pairs.h"

#include <algorithm>

namespace tw {
namespace {

// Small enough to stay in the nearest cache while operands are added.
constexpr int64_t kBlock = 256;

// The sum of up to kBlock elements; null if no operand has data. It lies in `room` or, where it is
// one operand's, there.
const float* sum_of_block(std::span<const float* const> operands, int64_t begin, int64_t count,
                          float* room) {
  if (operands.size() == 1) return operands[0] == nullptr ? nullptr : operands[0] + begin;
  const size_t middle = (operands.size() + 1) / 2;
  float other[kBlock];
  const float* first = sum_of_block(operands.first(middle), begin, count, room);
  const float* second = sum_of_block(operands.subspan(middle), begin, count, other);
  if (second == nullptr) return first;
  if (first == nullptr) {
    std::copy_n(second, count, room);
  } else {
    for (int64_t i = 0; i < count; ++i) room[i] = first[i] + second[i];
  }
  return room;
}

}  // namespace

void sum_in_pairs(std::span<const float* const> operands, int64_t begin, std::span<float> out,
                  bool accumulate) {
  float room[kBlock];
  const auto size = static_cast<int64_t>(out.size());
  for (int64_t done = 0; done < size; done += kBlock) {
    const int64_t count = std::min(kBlock, size - done);
    const float* total = sum_of_block(operands, begin + done, count, room);
    float* const target = out.data() + done;
    if (total == nullptr) {
      if (!accumulate) std::fill_n(target, count, 0.0f);
    } else if (accumulate) {
      for (int64_t i = 0; i < count; ++i) target[i] += total[i];
    } else {
      std::copy_n(total, count, target);
    }
  }
}

}  // namespace tw
