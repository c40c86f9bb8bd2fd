// From a row of logits to the next token.
//
// Order of operations: the request's constraint (a grammar); logit_bias; repetition, frequency and
// presence penalties; tokens that may not come yet (min_new_tokens); then, at temperature 0, the
// largest logit (lowest id of equal ones); else softmax(logits / temperature), the top_k likeliest,
// of those renormalized the smallest set that reaches top_p, of those the ones with at least min_p
// times the likeliest's share, and a draw from what is left. The draw depends on (seed, output
// position) only: neither batching nor preemption changes it.
//
// Log-probabilities are those of the model: log softmax of its own logits, before all of the above.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/cpu.h"
#include "core/status.h"
#include "engine/request.h"
#include "kernels/sampling/logits.h"

namespace tw {

// What sampling a sequence remembers between its tokens.
struct SamplerState {
  uint64_t seed = 0;
  std::unordered_map<TokenId, int32_t> output_counts;  // kept only where penalties need them
  std::unordered_map<TokenId, int32_t> prompt_counts;  // likewise
};

class Sampler {
 public:
  Sampler(const CpuFeatures& features, int64_t vocab_size);

  static SamplerState start(const Request& request, uint64_t default_seed);

  // The next token of a sequence that has produced `num_output_tokens`; `forbidden` may not come,
  // unless the constraint allows nothing else. The constraint moves on. Fails with internal when
  // the logits hold NaN, or as the constraint does.
  Expected<TokenEvent> sample(std::span<const float> logits, const Request& request,
                              SamplerState& state, int32_t num_output_tokens,
                              std::span<const TokenId> forbidden);

  // Log-probability of a given token, and the likeliest ones.
  TokenEvent score(std::span<const float> logits, TokenId token, int32_t num_top_logprobs);

 private:
  struct Candidate {
    TokenId token;
    float value;  // logit, then probability
  };
  // Words of a TokenConstraint: which tokens may come.
  using TokenMask = std::span<const uint32_t>;
  bool adjusts_logits(const SamplingParams& params, TokenMask allowed,
                      std::span<const TokenId> forbidden) const;
  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                const SamplerState& state, TokenMask allowed,
                                std::span<const TokenId> forbidden);
  bool any_left(std::span<const float> logits) const;
  TokenId draw(std::span<const float> logits, const SamplingParams& params, double uniform);
  TokenId draw_from_all(std::span<const float> probabilities, double uniform) const;
  // Leaves the `count` likeliest in candidates_, best first (lowest id of equal ones).
  void keep_best(std::span<const float> values, int64_t count);
  TokenId draw_from_candidates(const SamplingParams& params, double uniform);

  const kernels::LogitsKernels& kernels_;
  std::vector<float> adjusted_;       // [vocab_size]
  std::vector<float> probabilities_;  // [vocab_size]
  std::vector<Candidate> candidates_;
};

}  // namespace tw
