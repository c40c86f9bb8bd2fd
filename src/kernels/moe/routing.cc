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
  offsets.starts = layout.reserve((experts + 1) * sizeof(int32_t));
  offsets.counts = layout.reserve(threads * experts * sizeof(int32_t));
  offsets.next = layout.reserve(threads * experts * sizeof(int32_t));
  offsets.size = layout.size();
  return offsets;
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
  return routing;
}

void count_choices(const Routing& routing, int rank, Range tokens) {
  int32_t* counts = routing.counts + int64_t{rank} * routing.num_experts;
  std::fill_n(counts, routing.num_experts, 0);
  for (int64_t i = tokens.begin * routing.top_k; i < tokens.end * routing.top_k; ++i) {
    if (routing.experts[i] != kElsewhere) ++counts[routing.experts[i]];
  }
}

void place_choices(const Routing& routing, int rank, int num_threads, Range tokens) {
  int32_t* next = routing.next + int64_t{rank} * routing.num_experts;
  int32_t start = 0;
  for (int32_t expert = 0; expert < routing.num_experts; ++expert) {
    if (rank == 0) routing.starts[expert] = start;
    for (int thread = 0; thread < num_threads; ++thread) {
      if (thread == rank) next[expert] = start;
      start += routing.counts[int64_t{thread} * routing.num_experts + expert];
    }
  }
  if (rank == 0) routing.starts[routing.num_experts] = start;
  for (int64_t i = tokens.begin * routing.top_k; i < tokens.end * routing.top_k; ++i) {
    if (routing.experts[i] == kElsewhere) {
      routing.rows[i] = kElsewhere;
      continue;
    }
    const int32_t row = next[routing.experts[i]]++;
    routing.rows[i] = row;
    routing.row_weights[row] = routing.weights[i];
  }
}

void gather_rows(const Routing& routing, const PreparedActivations& from, Range tokens,
                 const PreparedActivations& to) {
  const auto row_bytes = static_cast<size_t>(from.row_stride * element_size(from.format));
  const auto group_bytes = static_cast<size_t>(from.group_stride) * sizeof(ActivationGroup);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const std::byte* values = from.values + token * static_cast<int64_t>(row_bytes);
    for (int32_t j = 0; j < routing.top_k; ++j) {
      const int64_t row = routing.rows[token * routing.top_k + j];
      if (row == kElsewhere) continue;
      std::memcpy(to.values + row * static_cast<int64_t>(row_bytes), values, row_bytes);
      if (group_bytes == 0) continue;
      std::memcpy(to.groups + row * to.group_stride, from.groups + token * from.group_stride,
                  group_bytes);
    }
  }
}

}  // namespace tw::kernels
