// The request fields that all generating endpoints share: sampling, stops, number of choices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/json.h"
#include "engine/request.h"
#include "server/request_fields.h"
#include "text/grammar.h"

namespace tw {

// Stop strings of one request. Matching costs the same however many they are, but each byte costs
// 24 bytes of automaton: these bounds keep that below what the rest of a request takes (2 MB), and
// are an order of magnitude beyond what clients were seen to use.
inline constexpr size_t kMaxStopStrings = 1024;
inline constexpr size_t kMaxStopStringBytes = size_t{64} << 10;
// Choices of one request (n, or prompts times n).
inline constexpr int32_t kMaxChoices = 128;
inline constexpr int32_t kMaxTopLogprobs = 20;  // the engine's bound
inline constexpr size_t kMaxStopTokenIds = 1024;
inline constexpr size_t kMaxLogitBias = 4096;

// What a request falls back on, of the served model.
struct RequestDefaults {
  SamplingParams sampling;  // of generation_config.json
};

// Sampling defaults of a checkpoint's generation_config.json; values of wrong types or out of range
// are left at the engine's defaults.
SamplingParams sampling_defaults(const Json& generation_config);

struct GenerationOptions {
  SamplingParams sampling;                // max_new_tokens is only valid with the next field set
  std::optional<int32_t> max_new_tokens;  // none: what the context leaves
  std::vector<std::string> stops;
  bool no_stop_trim = false;  // leave the stop string or token in the text
  bool skip_special_tokens = true;
  int32_t n = 1;
  std::optional<GrammarSource> grammar;  // that the output must follow
};

// OpenAI's spelling with SGLang's extras (max_tokens, max_completion_tokens, min_tokens, seed ...).
void read_openai_options(RequestFields& fields, GenerationOptions& options);
// SGLang's sampling_params.
void read_native_options(RequestFields& fields, GenerationOptions& options);

// A prompt as text, to be tokenized, or as ids.
using PromptInput = std::variant<std::string, std::vector<TokenId>>;

// The fields of both OpenAI endpoints besides the sampling.
struct OpenAiOptions {
  std::string model;      // empty: whatever is served
  std::string lora_path;  // name of an adapter; empty: `model` says
  std::string rid;        // the request's own id, for /abort_request
  bool stream = false;
  bool include_usage = false;
  GenerationOptions generation;
};

void read_openai_common(RequestFields& fields, OpenAiOptions& options);

}  // namespace tw
