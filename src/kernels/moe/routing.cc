#include "kernels/moe/routing.h"

#include <algorithm>
#include <cstring>

#include "core/buffer.h"

namespace tw::kernels {
namespace {

struct Offsets {
  size_t experts, weights, rows, row_weights, starts, counts, next, size;
};

Offsets offsets_of(const RoutingLimits& limits) {
  const auto choices = static_cast<size_t>(limits.max_num_tokens * limits.top_k);
  const auto experts = static_cast<size_t>(limits.num_experts);
  const auto threads = static_cast<size_t>(limits.num_threads);
  ArenaLayout layout;
  Offsets offsets;
  offsets.experts = layout.reserve(choices * sizeof(int32_t));
  offsets.weights = layout.reserve(choices * sizeof(float));
  offsets.rows = layout.reserve(choices * sizeof(int32_t));
  offsets.row_weights = layout.reserve(choices * sizeof(float));
  offsets.starts = layout.reserve(2 * (experts + 1) * sizeof(int32_t));
  offsets.counts = layout.reserve(threads * 2 * experts * sizeof(int32_t));
  offsets.next = layout.reserve(threads * 2 * experts * sizeof(int32_t));
  offsets.size = layout.size();
  return offsets;
}

// Calls f(class, choice) for the choices of `tokens` in order.
template <typename F>
void for_each_choice(const Routing& routing, Range tokens, F f) {
  const int64_t split = std::clamp(routing.first_prompt, tokens.begin, tokens.end);
  for (int64_t i = tokens.begin * routing.top_k; i < split * routing.top_k; ++i) f(0, i);
  for (int64_t i = split * routing.top_k; i < tokens.end * routing.top_k; ++i) f(1, i);
}

// A thread's line of a table with a number per class and expert.
int32_t* line_of(int32_t* table, const Routing& routing, int rank) {
  return table + int64_t{rank} * 2 * routing.num_experts;
}

}  // namespace

size_t routing_size(const RoutingLimits& limits) {
  return offsets_of(limits).size;
}

Routing layout_routing(const RoutingLimits& limits, std::byte* memory) {
  const Offsets offsets = offsets_of(limits);
  Routing routing;
  routing.num_experts = limits.num_experts;
  routing.top_k = limits.top_k;
  routing.experts = reinterpret_cast<int32_t*>(memory + offsets.experts);
  routing.weights = reinterpret_cast<float*>(memory + offsets.weights);
  routing.rows = reinterpret_cast<int32_t*>(memory + offsets.rows);
  routing.row_weights = reinterpret_cast<float*>(memory + offsets.row_weights);
  routing.starts = reinterpret_cast<int32_t*>(memory + offsets.starts);
  routing.counts = reinterpret_cast<int32_t*>(memory + offsets.counts);
  routing.next = reinterpret_cast<int32_t*>(memory + offsets.next);
  routing.first_prompt = limits.max_num_tokens;
  return routing;
}

void count_choices(const Routing& routing, int rank, Range tokens) {
  int32_t* counts = line_of(routing.counts, routing, rank);
  std::fill_n(counts, 2 * routing.num_experts, 0);
  for_each_choice(routing, tokens, [&](int32_t row_class, int64_t i) {
    const int32_t expert = routing.experts[i];
    if (expert != kElsewhere) ++counts[row_class * routing.num_experts + expert];
  });
}

void place_choices(const Routing& routing, int rank, int num_threads, Range tokens) {
  int32_t* next = line_of(routing.next, routing, rank);
  for (int32_t row_class = 0; row_class < 2; ++row_class) {
    int32_t* starts = row_class == 0 ? routing.starts : routing.prompt_starts();
    int32_t start = row_class == 0 ? 0 : static_cast<int32_t>(routing.first_prompt_row());
    for (int32_t expert = 0; expert < routing.num_experts; ++expert) {
      const int32_t column = row_class * routing.num_experts + expert;
      if (rank == 0) starts[expert] = start;
      for (int thread = 0; thread < num_threads; ++thread) {
        if (thread == rank) next[column] = start;
        start += line_of(routing.counts, routing, thread)[column];
      }
    }
    if (rank == 0) starts[routing.num_experts] = start;
  }
  for_each_choice(routing, tokens, [&](int32_t row_class, int64_t i) {
    const int32_t expert = routing.experts[i];
    if (expert == kElsewhere) {
      routing.rows[i] = kElsewhere;
      return;
    }
    const int32_t row = next[row_class * routing.num_experts + expert]++;
    routing.rows[i] = row;
    routing.row_weights[row] = routing.weights[i];
  });
}

void gather_rows(const Routing& routing, const PreparedActivations& from, Range tokens,
                 const PreparedActivations& to, int64_t first_row) {
  const auto row_bytes = static_cast<size_t>(from.row_stride * element_size(from.format));
  const auto group_bytes = static_cast<size_t>(from.group_stride) * sizeof(ActivationGroup);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const std::byte* values = from.values + token * static_cast<int64_t>(row_bytes);
    for (int32_t j = 0; j < routing.top_k; ++j) {
      const int32_t choice = routing.rows[token * routing.top_k + j];
      if (choice == kElsewhere) continue;
      const int64_t row = choice - first_row;
      std::memcpy(to.values + row * static_cast<int64_t>(row_bytes), values, row_bytes);
      if (group_bytes == 0) continue;
      std::memcpy(to.groups + row * to.group_stride, from.groups + token * from.group_stride,
                  group_bytes);
    }
  }
}

}  // namespace tw::kernels
