// The router over Vec (math/vector_scalar.h). The choice itself is scalar: an insertion into the
// few best, which most experts fail at the first comparison.
#pragma once

#include "kernels/math/functions.h"
#include "kernels/moe/router.h"

namespace tw::kernels {

inline constexpr float kLowest = -3.4028235e38f;

// The best `count` of `n` values as indices, best first; of equals the lower one. Values are above
// -infinity where they may be chosen, and enough of them are.
template <typename Vec>
inline void choose_best(const float* values, int32_t n, int32_t count, int32_t* chosen) {
  float best[kMaxTopK];
  int32_t found = 0;
  for (int32_t i = 0; i < n; ++i) {
    const float value = values[i];
    if (!(value >= kLowest)) continue;
    if (found == count && !(value > best[count - 1])) continue;
    int32_t place = found < count ? found++ : count - 1;
    for (; place > 0 && value > best[place - 1]; --place) {
      best[place] = best[place - 1];
      chosen[place] = chosen[place - 1];
    }
    best[place] = value;
    chosen[place] = i;
  }
}

template <typename Vec>
inline void softmax_scores(const float* logits, int32_t n, float* scores) {
  Vec best = Vec::broadcast(kLowest);
  for (int32_t i = 0; i < n; i += 16) {
    Vec value = Vec::load_first(logits + i, n - i);
    if (n - i < 16) {
      // Lanes past the end repeat the first element.
      float last[16];
      for (int lane = 0; lane < 16; ++lane) last[lane] = logits[lane < n - i ? i + lane : 0];
      value = Vec::load(last);
    }
    best = max(value, best);
  }
  const Vec largest = Vec::broadcast(best.reduce_max());
  Vec sum = Vec::zero();
  for (int32_t i = 0; i < n; i += 16) {
    vector_exp(Vec::load_first(logits + i, n - i) - largest).store_first(scores + i, n - i);
    sum = sum + Vec::load_first(scores + i, n - i);
  }
  const Vec total = Vec::broadcast(sum.reduce_add());
  for (int32_t i = 0; i < n; i += 16) {
    (Vec::load_first(scores + i, n - i) / total).store_first(scores + i, n - i);
  }
}

template <typename Vec>
inline void sigmoid_scores(const float* logits, int32_t n, float* scores) {
  const Vec one = Vec::broadcast(1.0f);
  for (int32_t i = 0; i < n; i += 16) {
    const Vec x = Vec::load_first(logits + i, n - i);
    (one / (one + vector_exp(Vec::zero() - x))).store_first(scores + i, n - i);
  }
}

// Bars the experts of all but the best groups from the choice.
template <typename Vec>
inline void limit_to_groups(const RouterConfig& config, float* choice) {
  const int32_t size = config.num_experts / config.num_groups;
  float scores[kMaxExperts];
  for (int32_t group = 0; group < config.num_groups; ++group) {
    float first = -__builtin_inff(), second = -__builtin_inff();
    for (int32_t i = group * size; i < (group + 1) * size; ++i) {
      if (choice[i] > first) {
        second = first;
        first = choice[i];
      } else if (choice[i] > second) {
        second = choice[i];
      }
    }
    const bool two = config.group_score == GroupScore::sum_of_two_best && size > 1;
    const float score = two ? first + second : first;
    scores[group] = score >= kLowest ? score : kLowest;
  }
  int32_t chosen[kMaxTopK];
  choose_best<Vec>(scores, config.num_groups, config.top_groups, chosen);
  bool is_chosen[kMaxExperts] = {};
  for (int32_t i = 0; i < config.top_groups; ++i) is_chosen[chosen[i]] = true;
  for (int32_t i = 0; i < config.num_experts; ++i) {
    if (!is_chosen[i / size]) choice[i] = -__builtin_inff();
  }
}

template <typename Vec>
inline void route_token(const RouterArguments& a, const float* logits, int32_t* experts,
                        float* weights) {
  const RouterConfig& config = a.config;
  const int32_t n = config.num_experts;
  float scores[kMaxExperts], choice[kMaxExperts];
  if (config.score == ExpertScore::softmax) {
    softmax_scores<Vec>(logits, n, scores);
  } else {
    sigmoid_scores<Vec>(logits, n, scores);
  }
  // Logits are in the same order as scores, and differ where scores are rounded to the same.
  const bool adds_scores =
      config.num_groups > 1 && config.group_score == GroupScore::sum_of_two_best;
  const bool by_score = a.correction_bias != nullptr || adds_scores;
  for (int32_t i = 0; i < n; ++i) {
    float value = by_score ? scores[i] : logits[i];
    if (a.correction_bias != nullptr) value = value + a.correction_bias[i];
    choice[i] = value >= kLowest ? value : kLowest;
  }
  if (config.num_groups > 1) limit_to_groups<Vec>(config, choice);
  choose_best<Vec>(choice, n, config.top_k, experts);

  float sum = 0.0f;
  for (int32_t j = 0; j < config.top_k; ++j) {
    weights[j] = scores[experts[j]];
    sum = sum + weights[j];
  }
  // The addend keeps a sum of zeros from dividing, and is lost in any other.
  const float divisor = config.renormalize ? sum + 1e-20f : 1.0f;
  for (int32_t j = 0; j < config.top_k; ++j) weights[j] = weights[j] / divisor * config.scale;
}

template <typename Vec>
void route(const RouterArguments& a, Range tokens) {
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    route_token<Vec>(a, a.logits.data + token * a.logits.row_stride,
                     a.experts + token * a.config.top_k, a.weights + token * a.config.top_k);
  }
}

}  // namespace tw::kernels
