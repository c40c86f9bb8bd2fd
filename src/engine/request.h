// A generation request as the engine sees it: token ids in, token ids out.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "engine/pooling.h"
#include "engine/token_constraint.h"

namespace tw {

struct LoraAdapter;

using TokenId = int32_t;

// Names and meanings are those of SGLang's sampling_params and OpenAI's request fields.
struct SamplingParams {
  float temperature = 1.0f;         // 0 means greedy
  float top_p = 1.0f;               // (0, 1]
  int32_t top_k = -1;               // -1: all
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // (0, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  float presence_penalty = 0.0f;    // [-2, 2]
  std::optional<uint64_t> seed = {};
  int32_t max_new_tokens = 128;
  int32_t min_new_tokens = 0;
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids = {};
  std::vector<std::pair<TokenId, float>> logit_bias = {};

  // Names the field and its valid range when a value cannot be right.
  Status validate(int64_t vocab_size) const;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

// One generated token (or, with finish_reason set, the end).
struct TokenEvent {
  TokenId token = 0;
  bool has_token = false;
  float logprob = 0;                       // valid when logprobs were asked for
  std::vector<TokenLogprob> top_logprobs;  // best first, empty unless asked for
};

enum class FinishReason : uint8_t { none, stop, length, abort, error };

const char* to_string(FinishReason reason);

// What a request's sink receives, in order, from the engine thread. It must return quickly.
struct EngineOutput {
  uint64_t request_id = 0;
  std::vector<TokenEvent> tokens;  // usually one
  FinishReason finish_reason = FinishReason::none;
  std::optional<TokenId> matched_stop_token;  // with finish_reason stop
  std::optional<Error> error;                 // with finish_reason error
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;  // of the prompt, found in the prefix cache
  int32_t num_output_tokens = 0;  // so far
  // With the first output, when prompt logprobs were asked for: entry i is the logprob of prompt
  // token i given those before it (entry 0 has no value and is 0).
  std::vector<TokenEvent> prompt_logprobs;
  // With the end of a request that asked for one: not normalized.
  std::vector<float> embedding;
  // With the end, in the order of the request's label_token_ids.
  std::vector<float> label_logprobs;
};

using OutputSink = std::function<void(EngineOutput&&)>;

struct Request {
  uint64_t id = 0;  // given by Engine::submit
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  bool return_logprob = false;
  bool return_prompt_logprob = false;
  int32_t num_top_logprobs = 0;                 // 0 to 20
  std::shared_ptr<TokenConstraint> constraint;  // of this request alone; null: none
  // Either makes the request one about its prompt: no token is generated, the end brings the
  // prompt's embedding, or the log-probabilities of these tokens as its next one.
  std::optional<Pooling> pooling = {};
  std::vector<TokenId> label_token_ids = {};
  std::shared_ptr<const LoraAdapter> adapter = {};  // of Engine::load_adapter(); null: none
  OutputSink sink;
};

}  // namespace tw
