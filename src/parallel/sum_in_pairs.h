// The order in which ranks and hosts are added: in pairs.
//
// The sum of n operands is that of the first half, which has the one in the middle, plus that of
// the second: ((0 + 1) + 2) + (3 + 4). So neighbours may be added first, wherever they lie, and the
// result has the same bits; and rounding errors grow with the logarithm of n.
#pragma once

#include <cstdint>
#include <span>

namespace tw {

// out = the operands' elements from number `begin` on, added; or out += it. An operand without data
// counts as zeros.
void sum_in_pairs(std::span<const float* const> operands, int64_t begin, std::span<float> out,
                  bool accumulate);

}  // namespace tw
