#include "engine/request.h"

#include <cmath>

namespace tw {
namespace {

template <typename T>
Status check_range(const char* field, T value, T lowest, T highest, bool lowest_allowed = true) {
  const bool above = lowest_allowed ? value >= lowest : value > lowest;
  if (above && value <= highest) return {};
  return error(ErrorCode::invalid_argument, "{} is {}; it must be in {}{}, {}]", field, value,
               lowest_allowed ? '[' : '(', lowest, highest);
}

Status check_token(const char* field, TokenId id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return error(ErrorCode::invalid_argument, "{} holds token id {}; the vocabulary has ids 0 to {}",
               field, id, vocab_size - 1);
}

}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "none";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
    case FinishReason::error:
      return "error";
  }
  return "?";
}

Status SamplingParams::validate(int64_t vocab_size) const {
  constexpr float kInfinity = std::numeric_limits<float>::max();
  constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
  for (const Status& status :
       {check_range("temperature", temperature, 0.0f, kInfinity),
        check_range("top_p", top_p, 0.0f, 1.0f, false), check_range("min_p", min_p, 0.0f, 1.0f),
        check_range("repetition_penalty", repetition_penalty, 0.0f, 2.0f, false),
        check_range("frequency_penalty", frequency_penalty, -2.0f, 2.0f),
        check_range("presence_penalty", presence_penalty, -2.0f, 2.0f),
        check_range("max_new_tokens", max_new_tokens, 0, kMaxInt),
        check_range("min_new_tokens", min_new_tokens, 0, max_new_tokens)}) {
    if (!status) return status;
  }
  if (top_k != -1 && top_k < 1) {
    return error(ErrorCode::invalid_argument, "top_k is {}; it must be -1 (all) or at least 1",
                 top_k);
  }
  for (TokenId id : stop_token_ids) {
    if (Status status = check_token("stop_token_ids", id, vocab_size); !status) return status;
  }
  for (const auto& [id, bias] : logit_bias) {
    if (Status status = check_token("logit_bias", id, vocab_size); !status) return status;
    if (Status status = check_range("logit_bias", bias, -100.0f, 100.0f); !status) return status;
  }
  return {};
}

}  // namespace tw
