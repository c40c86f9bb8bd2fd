#include "parallel/expert_placement.h"

#include <algorithm>
#include <numeric>

namespace tw {
namespace {

using Group = std::vector<int32_t>;

bool holds(const Group& group, int32_t expert) {
  return std::ranges::find(group, expert) != group.end();
}

// An expert that nobody chose yet may be chosen next.
double work_of(std::span<const int64_t> work, int32_t expert) {
  return work.empty() ? 1.0 : 1.0 + static_cast<double>(work[static_cast<size_t>(expert)]);
}

std::vector<int> count_copies(const ExpertSlots& slots, std::span<const int64_t> work) {
  std::vector<int> copies(static_cast<size_t>(slots.num_experts), 1);
  const int64_t total = int64_t{slots.per_group()} * slots.num_groups;
  for (int64_t extra = slots.num_experts; extra < total; ++extra) {
    int32_t busiest = -1;
    double most = 0;
    for (int32_t expert = 0; expert < slots.num_experts; ++expert) {
      const int count = copies[static_cast<size_t>(expert)];
      const double each = work_of(work, expert) / count;
      if (count == slots.num_groups || each <= most) continue;
      most = each;
      busiest = expert;
    }
    ++copies[static_cast<size_t>(busiest)];
  }
  return copies;
}

struct Copy {
  int32_t expert;
  double work;
};

// Where all groups with a free slot hold the expert already, one of another group makes room by
// moving: a full group has an expert that one with a free slot does not.
void make_room(std::vector<Group>& groups, std::vector<double>& work, const ExpertSlots& slots,
               const Copy& copy, std::span<const Copy> copies) {
  const auto roomy = std::ranges::find_if(
      groups, [&](const Group& g) { return std::ssize(g) < slots.per_group(); });
  const auto full =
      std::ranges::find_if(groups, [&](const Group& g) { return !holds(g, copy.expert); });
  const auto moved = std::ranges::find_if(*full, [&](int32_t e) { return !holds(*roomy, e); });
  const double moved_work =
      std::ranges::find(copies, *moved, [](const Copy& c) { return c.expert; })->work;
  work[static_cast<size_t>(roomy - groups.begin())] += moved_work;
  work[static_cast<size_t>(full - groups.begin())] += copy.work - moved_work;
  roomy->push_back(*moved);
  *moved = copy.expert;
}

int64_t count_common(const Group& a, const Group& b) {
  return std::ranges::count_if(a, [&](int32_t expert) { return holds(b, expert); });
}

// The experts of `wanted`, those that `held` has in the same slots.
Group keep_slots(const Group& held, const Group& wanted) {
  Group result(wanted.size(), -1);
  for (size_t slot = 0; slot < held.size(); ++slot) {
    if (holds(wanted, held[slot])) result[slot] = held[slot];
  }
  auto free = result.begin();
  for (const int32_t expert : wanted) {
    if (holds(result, expert)) continue;
    free = std::find(free, result.end(), -1);
    *free = expert;
  }
  return result;
}

}  // namespace

std::vector<double> ExpertPlacement::group_work(std::span<const int64_t> work) const {
  std::vector<int> copies(static_cast<size_t>(num_experts), 0);
  for (const Group& group : slots) {
    for (const int32_t expert : group) ++copies[static_cast<size_t>(expert)];
  }
  std::vector<double> sums;
  for (const Group& group : slots) {
    double sum = 0;
    for (const int32_t expert : group) {
      const auto e = static_cast<size_t>(expert);
      sum += static_cast<double>(work[e]) / copies[e];
    }
    sums.push_back(sum);
  }
  return sums;
}

double ExpertPlacement::imbalance(std::span<const int64_t> work) const {
  const std::vector<double> sums = group_work(work);
  const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
  if (total <= 0) return 1;
  return *std::ranges::max_element(sums) * static_cast<double>(sums.size()) / total;
}

int32_t ExpertSlots::per_group() const {
  const int32_t wanted = (num_experts + num_redundant + num_groups - 1) / num_groups;
  return std::min(wanted, num_experts);
}

ExpertPlacement place_experts(const ExpertSlots& slots, std::span<const int64_t> work) {
  const std::vector<int> counts = count_copies(slots, work);
  std::vector<Copy> copies;
  for (int32_t expert = 0; expert < slots.num_experts; ++expert) {
    const int count = counts[static_cast<size_t>(expert)];
    copies.insert(copies.end(), static_cast<size_t>(count),
                  {expert, work_of(work, expert) / count});
  }
  std::ranges::stable_sort(copies, std::ranges::greater{}, &Copy::work);

  std::vector<Group> groups(static_cast<size_t>(slots.num_groups));
  std::vector<double> sums(groups.size(), 0.0);
  for (const Copy& copy : copies) {
    size_t best = groups.size();
    for (size_t g = 0; g < groups.size(); ++g) {
      if (std::ssize(groups[g]) == slots.per_group() || holds(groups[g], copy.expert)) continue;
      if (best == groups.size() || sums[g] < sums[best]) best = g;
    }
    if (best == groups.size()) {
      make_room(groups, sums, slots, copy, copies);
      continue;
    }
    groups[best].push_back(copy.expert);
    sums[best] += copy.work;
  }
  return {slots.num_experts, std::move(groups)};
}

ExpertPlacement move_experts(const ExpertPlacement& from, const ExpertSlots& slots,
                             std::span<const int64_t> work) {
  ExpertPlacement wanted = place_experts(slots, work);
  ExpertPlacement result{slots.num_experts, {}};
  for (const Group& held : from.slots) {
    const auto nearest = std::ranges::max_element(
        wanted.slots, {}, [&](const Group& group) { return count_common(held, group); });
    result.slots.push_back(keep_slots(held, *nearest));
    wanted.slots.erase(nearest);
  }
  return result;
}

}  // namespace tw
