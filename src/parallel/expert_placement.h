// Which ranks hold which experts of a mixture, and how evenly that divides the work.
//
// Expert parallelism divides the ranks into groups. Each group has the same number of slots per
// layer and an expert in each of them, whole; ranks of one group divide its experts between them.
// Where there are more slots than experts, some experts are held several times: those that would
// be the busiest otherwise.
//
// The balance is greedy, as in DeepSeek's EPLB (https://github.com/deepseek-ai/EPLB): another copy
// for the expert with the most work per copy, while there are slots; then the copies, those with
// the most work first, each to the group with the least work so far (Graham's LPT rule, 1969).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tw {

// How often each expert of a layer was chosen, by the layer's name ("model.layers.3.mlp").
using ExpertChoices = std::map<std::string, std::vector<int64_t>>;

struct ExpertPlacement {
  int32_t num_experts = 0;
  std::vector<std::vector<int32_t>> slots;  // [group][slot]: an expert, each at most once a group

  int num_groups() const { return static_cast<int>(slots.size()); }
  // Work of each group when expert e has `work[e]`, divided evenly over its copies.
  std::vector<double> group_work(std::span<const int64_t> work) const;
  // The busiest group's work over the mean's: 1 is even, num_groups() is all in one.
  double imbalance(std::span<const int64_t> work) const;

  friend bool operator==(const ExpertPlacement&, const ExpertPlacement&) = default;
};

struct ExpertSlots {
  int32_t num_experts = 0;
  int num_groups = 1;
  int32_t num_redundant = 0;  // slots beyond one per expert, at least

  // Equal for all groups: what is left over by rounding up holds copies as well. No group holds an
  // expert twice.
  int32_t per_group() const;
};

// `work`: of each expert, or empty where nothing is known of it: all alike.
ExpertPlacement place_experts(const ExpertSlots& slots, std::span<const int64_t> work);

// The same for experts that lie elsewhere already: groups are named, and slots ordered, so that as
// many of them as possible keep what they have.
ExpertPlacement move_experts(const ExpertPlacement& from, const ExpertSlots& slots,
                             std::span<const int64_t> work);

}  // namespace tw
