#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tw {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// SplitMix64 (Steele et al., 2014) of a counter: a random number for each (seed, position).
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// In [0, 1), 53 bits.
double uniform(uint64_t seed, int32_t position) {
  const uint64_t bits = mix(mix(seed) + static_cast<uint64_t>(position));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

bool has_nan(std::span<const float> logits) {
  // Without an early exit, so that the compiler vectorizes it.
  int found = 0;
  for (float logit : logits) found |= logit != logit;
  return found != 0;
}

// `to` gets the logits of the allowed tokens, and kNever elsewhere. Grammars allow either few
// tokens or nearly all: most words are taken or left as a whole.
void copy_allowed(std::span<const float> logits, std::span<const uint32_t> allowed,
                  std::span<float> to) {
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const size_t count = std::min<size_t>(32, logits.size() - begin);
    const uint32_t word = begin / 32 < allowed.size() ? allowed[begin / 32] : 0;
    if (word == 0) {
      std::fill_n(to.begin() + static_cast<ptrdiff_t>(begin), count, kNever);
      continue;
    }
    for (size_t i = 0; i < count; ++i) {
      to[begin + i] = (word >> i & 1) != 0 ? logits[begin + i] : kNever;
    }
  }
}

bool counts_tokens(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

}  // namespace

Sampler::Sampler(const CpuFeatures& features, int64_t vocab_size)
    : kernels_(kernels::select_logits(features)),
      adjusted_(static_cast<size_t>(vocab_size)),
      probabilities_(static_cast<size_t>(vocab_size)) {
  candidates_.reserve(static_cast<size_t>(vocab_size));
}

SamplerState Sampler::start(const Request& request, uint64_t default_seed) {
  SamplerState state;
  state.seed = request.sampling.seed.value_or(default_seed);
  if (request.sampling.repetition_penalty != 1.0f) {
    for (TokenId id : request.prompt) ++state.prompt_counts[id];
  }
  return state;
}

bool Sampler::adjusts_logits(const SamplingParams& params, TokenMask allowed,
                             std::span<const TokenId> forbidden) const {
  return !allowed.empty() || !params.logit_bias.empty() || counts_tokens(params) ||
         !forbidden.empty();
}

std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& params,
                                       const SamplerState& state, TokenMask allowed,
                                       std::span<const TokenId> forbidden) {
  if (allowed.empty()) {
    std::copy(logits.begin(), logits.end(), adjusted_.begin());
  } else {
    copy_allowed(logits, allowed, adjusted_);
  }
  const auto at = [this](TokenId id) -> float& { return adjusted_[static_cast<size_t>(id)]; };
  for (const auto& [id, bias] : params.logit_bias) at(id) += bias;
  if (params.repetition_penalty != 1.0f) {
    const auto penalize = [&](TokenId id) {
      float& logit = at(id);
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    };
    for (const auto& [id, count] : state.prompt_counts) penalize(id);
    for (const auto& [id, count] : state.output_counts) {
      if (!state.prompt_counts.contains(id)) penalize(id);
    }
  }
  for (const auto& [id, count] : state.output_counts) {
    at(id) -= params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
  }
  for (TokenId id : forbidden) at(id) = kNever;
  return adjusted_;
}

bool Sampler::any_left(std::span<const float> logits) const {
  const auto best = kernels_.argmax(logits.data(), static_cast<int64_t>(logits.size()));
  return logits[static_cast<size_t>(best)] != kNever;
}

Expected<TokenEvent> Sampler::sample(std::span<const float> logits, const Request& request,
                                     SamplerState& state, int32_t num_output_tokens,
                                     std::span<const TokenId> forbidden) {
  if (has_nan(logits)) {
    return error(
        ErrorCode::internal,
        "the model's logits are not numbers (NaN); the checkpoint's weights may be broken");
  }
  const SamplingParams& params = request.sampling;
  TokenMask allowed;
  if (request.constraint) {
    auto mask = request.constraint->allowed();
    if (!mask) return forward_error(mask);
    allowed = *mask;
  }
  std::span<const float> row = logits;
  if (adjusts_logits(params, allowed, forbidden)) {
    row = adjust(logits, params, state, allowed, forbidden);
    // A grammar that can only end goes before the tokens that may not come yet.
    if (!allowed.empty() && !forbidden.empty() && !any_left(row)) {
      row = adjust(logits, params, state, allowed, {});
    }
    if (!allowed.empty() && !any_left(row)) {
      return error(ErrorCode::internal, "the grammar leaves no token that could come next");
    }
  }
  TokenId token = 0;
  if (params.temperature == 0.0f || params.top_k == 1) {
    token = static_cast<TokenId>(kernels_.argmax(row.data(), static_cast<int64_t>(row.size())));
  } else {
    token = draw(row, params, uniform(state.seed, num_output_tokens));
  }
  if (request.constraint) {
    if (Status status = request.constraint->accept(token); !status) return forward_error(status);
  }
  if (counts_tokens(params)) ++state.output_counts[token];
  if (request.return_logprob) return score(logits, token, request.num_top_logprobs);
  TokenEvent event;
  event.token = token;
  event.has_token = true;
  return event;
}

TokenEvent Sampler::score(std::span<const float> logits, TokenId token, int32_t num_top_logprobs) {
  const float normalizer = kernels_.log_sum_exp(logits.data(), static_cast<int64_t>(logits.size()));
  TokenEvent event;
  event.token = token;
  event.has_token = true;
  event.logprob = logits[static_cast<size_t>(token)] - normalizer;
  if (num_top_logprobs > 0) {
    keep_best(logits, num_top_logprobs);
    for (const Candidate& candidate : candidates_) {
      event.top_logprobs.push_back({candidate.token, candidate.value - normalizer});
    }
  }
  return event;
}

void Sampler::keep_best(std::span<const float> values, int64_t count) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  };
  candidates_.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    candidates_.push_back({static_cast<TokenId>(i), values[i]});
  }
  count = std::min<int64_t>(count, static_cast<int64_t>(candidates_.size()));
  const auto end = candidates_.begin() + count;
  if (end != candidates_.end())
    std::nth_element(candidates_.begin(), end, candidates_.end(), better);
  candidates_.erase(end, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end(), better);
}

TokenId Sampler::draw(std::span<const float> logits, const SamplingParams& params,
                      double uniform_draw) {
  const auto size = static_cast<int64_t>(logits.size());
  // Temperatures next to zero would overflow; what they ask for is the largest logit.
  if (params.temperature < 1e-5f) {
    return static_cast<TokenId>(kernels_.argmax(logits.data(), size));
  }
  const float sum =
      kernels_.softmax(logits.data(), size, 1.0f / params.temperature, probabilities_.data());
  if (!(sum > 0)) return static_cast<TokenId>(kernels_.argmax(logits.data(), size));
  const bool limited = params.top_k > 0 && params.top_k < size;
  if (!limited && params.top_p >= 1.0f && params.min_p <= 0.0f) {
    return draw_from_all(probabilities_, uniform_draw);
  }
  if (limited) {
    keep_best(probabilities_, params.top_k);
    return draw_from_candidates(params, uniform_draw);
  }
  // top_p and min_p seldom need many: take more only while what was taken falls short.
  for (int64_t count = 256;; count *= 8) {
    keep_best(probabilities_, count);
    double taken = 0;
    for (const Candidate& candidate : candidates_) taken += candidate.value;
    const bool enough_mass = params.top_p < 1.0f && taken >= params.top_p;
    const bool below_min_p =
        params.min_p > 0.0f && candidates_.back().value < params.min_p * candidates_.front().value;
    if (enough_mass || below_min_p || static_cast<int64_t>(candidates_.size()) == size) break;
  }
  return draw_from_candidates(params, uniform_draw);
}

TokenId Sampler::draw_from_all(std::span<const float> probabilities, double uniform_draw) const {
  double left = 0;
  for (float p : probabilities) left += p;
  left *= uniform_draw;
  size_t last_possible = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] <= 0) continue;
    last_possible = i;
    left -= probabilities[i];
    if (left < 0) break;
  }
  return static_cast<TokenId>(last_possible);
}

TokenId Sampler::draw_from_candidates(const SamplingParams& params, double uniform_draw) {
  // top_p is a share of the candidates that top_k left, or of everything where it left all.
  double total = 1.0;
  if (params.top_k > 0) {
    total = 0;
    for (const Candidate& candidate : candidates_) total += candidate.value;
  }
  const double wanted = params.top_p * total;
  const float least = params.min_p * candidates_.front().value;
  size_t kept = 0;
  double mass = 0;
  while (kept < candidates_.size()) {
    if (kept > 0 && (candidates_[kept].value < least || candidates_[kept].value <= 0)) break;
    mass += candidates_[kept].value;
    ++kept;
    if (params.top_p < 1.0f && mass >= wanted) break;
  }
  double left = uniform_draw * mass;
  for (size_t i = 0; i < kept; ++i) {
    left -= candidates_[i].value;
    if (left < 0) return candidates_[i].token;
  }
  return candidates_[kept - 1].token;
}

}  // namespace tw
