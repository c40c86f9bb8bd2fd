// Which of a token's choices this rank computes, where ranks hold different experts.
//
// The routing names experts; from here on it names the slots that they lie in on this rank, and
// kElsewhere for those that other ranks compute. Of several ranks that hold an expert, the one with
// the fewest of the token's other choices computes it. That depends on the token alone, so all
// ranks agree without a word, and a row's bits do not depend on the rest of the batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_team.h"
#include "kernels/moe/routing.h"

namespace tw::kernels {

inline constexpr int kMaxExpertGroups = 64;

struct ExpertDispatch {
  struct Holder {
    int32_t group = 0;
    int32_t slot = 0;
  };
  int32_t own_group = 0;
  std::vector<int32_t> starts;  // [num_experts + 1]: expert e has holders [starts[e], starts[e+1])
  std::vector<Holder> holders;  // at least one of each expert

  bool empty() const { return holders.empty(); }  // every expert lies in the slot of its number
};

// `slots`: of each group, the expert that lies in each of its slots.
ExpertDispatch make_dispatch(int32_t num_experts, std::span<const std::vector<int32_t>> slots,
                             int32_t own_group);

// Rewrites routing.experts of `tokens`.
void keep_own_choices(const ExpertDispatch& dispatch, const Routing& routing, Range tokens);

}  // namespace tw::kernels
