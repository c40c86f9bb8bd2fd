#include "kernels/moe/dispatch.h"

#include <algorithm>
#include <array>
#include <bit>

namespace tw::kernels {
namespace {

using Holder = ExpertDispatch::Holder;
using GroupLoads = std::array<int32_t, kMaxExpertGroups>;

std::span<const Holder> holders_of(const ExpertDispatch& dispatch, int32_t expert) {
  const auto e = static_cast<size_t>(expert);
  const auto begin = static_cast<size_t>(dispatch.starts[e]);
  return {dispatch.holders.data() + begin, static_cast<size_t>(dispatch.starts[e + 1]) - begin};
}

// Where the search for the least busy holder begins, so that equals get equal shares of all tokens:
// the bits of a weight are as good as random.
size_t first_of(std::span<const Holder> holders, float weight) {
  const uint32_t bits = std::bit_cast<uint32_t>(weight) * 0x9E3779B1u;
  return static_cast<size_t>(uint64_t{bits} * holders.size() >> 32);
}

const Holder& least_busy(std::span<const Holder> holders, float weight, const GroupLoads& loads) {
  const size_t first = first_of(holders, weight);
  const Holder* best = &holders[first];
  for (size_t i = 1; i < holders.size(); ++i) {
    const Holder& other = holders[(first + i) % holders.size()];
    if (loads[static_cast<size_t>(other.group)] < loads[static_cast<size_t>(best->group)]) {
      best = &other;
    }
  }
  return *best;
}

void keep_own_choices(const ExpertDispatch& dispatch, int32_t* experts, const float* weights,
                      int32_t top_k) {
  GroupLoads loads = {};
  // Those without a choice of holders first.
  for (int32_t j = 0; j < top_k; ++j) {
    const auto holders = holders_of(dispatch, experts[j]);
    if (holders.size() == 1) ++loads[static_cast<size_t>(holders.front().group)];
  }
  for (int32_t j = 0; j < top_k; ++j) {
    const auto holders = holders_of(dispatch, experts[j]);
    const Holder& holder =
        holders.size() == 1 ? holders.front() : least_busy(holders, weights[j], loads);
    if (holders.size() > 1) ++loads[static_cast<size_t>(holder.group)];
    experts[j] = holder.group == dispatch.own_group ? holder.slot : kElsewhere;
  }
}

}  // namespace

ExpertDispatch make_dispatch(int32_t num_experts, std::span<const std::vector<int32_t>> slots,
                             int32_t own_group) {
  ExpertDispatch dispatch;
  dispatch.own_group = own_group;
  for (int32_t expert = 0; expert < num_experts; ++expert) {
    dispatch.starts.push_back(static_cast<int32_t>(dispatch.holders.size()));
    for (size_t group = 0; group < slots.size(); ++group) {
      const auto slot = std::ranges::find(slots[group], expert);
      if (slot == slots[group].end()) continue;
      dispatch.holders.push_back(
          {static_cast<int32_t>(group), static_cast<int32_t>(slot - slots[group].begin())});
    }
  }
  dispatch.starts.push_back(static_cast<int32_t>(dispatch.holders.size()));
  return dispatch;
}

void keep_own_choices(const ExpertDispatch& dispatch, const Routing& routing, Range tokens) {
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const int64_t first = token * routing.top_k;
    keep_own_choices(dispatch, routing.experts + first, routing.weights + first, routing.top_k);
  }
}

}  // namespace tw::kernels
