// Tokens sorted by expert: every choice of an expert by a token gets a row, and an expert's rows
// are neighbours, in order of the tokens.
//
// A stable counting sort that all threads share. Each routes and counts its own tokens
// (count_choices), and after a barrier places them (place_choices): its rows of an expert begin
// behind those of the threads before it. So the order does not depend on the number of threads.
// A choice of kElsewhere gets no row.
//
// Tokens from first_prompt on are a class of their own, whose rows lie behind those of all others:
// other kernels may compute them (docs/decisions/004).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/thread_team.h"
#include "kernels/gemm/gemm.h"

namespace tw::kernels {

// In place of an expert: another rank computes this choice (dispatch.h).
inline constexpr int32_t kElsewhere = -1;

struct RoutingLimits {
  int64_t max_num_tokens = 0;
  int32_t num_experts = 0;
  int32_t top_k = 0;
  int32_t num_threads = 1;
};

// Arrays inside caller-owned memory.
struct Routing {
  int32_t num_experts = 0;
  int32_t top_k = 0;
  int32_t* experts = nullptr;    // [tokens, top_k]
  float* weights = nullptr;      // [tokens, top_k]
  int32_t* rows = nullptr;       // [tokens, top_k]: where each choice's row lies, or kElsewhere
  float* row_weights = nullptr;  // [tokens * top_k]: weights in order of the rows
  int32_t* starts = nullptr;     // [2, num_experts + 1]: of each class, expert e has rows
                                 // [starts[e], starts[e + 1])
  int32_t* counts = nullptr;     // [num_threads, 2, num_experts]
  int32_t* next = nullptr;       // [num_threads, 2, num_experts]
  int64_t first_prompt = 0;      // the token that begins the second class; at first: none does

  int32_t* prompt_starts() const { return starts + num_experts + 1; }
  // Where the rows of the second class begin.
  int64_t first_prompt_row() const { return first_prompt * top_k; }
};

size_t routing_size(const RoutingLimits& limits);
// `memory` is 64-byte aligned.
Routing layout_routing(const RoutingLimits& limits, std::byte* memory);

// Counts the choices of `tokens`, the share of thread `rank`.
void count_choices(const Routing& routing, int rank, Range tokens);

// Fills rows and row_weights of `tokens`, after all of num_threads threads have counted; thread 0
// fills starts as well.
void place_choices(const Routing& routing, int rank, int num_threads, Range tokens);

// Copies each token's prepared row to the rows of its choices, of which `to` begins with
// `first_row`. Both are laid out by layout_prepared_activations for the same format and k.
void gather_rows(const Routing& routing, const PreparedActivations& from, Range tokens,
                 const PreparedActivations& to, int64_t first_row = 0);

}  // namespace tw::kernels
