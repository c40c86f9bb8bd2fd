#include "server/generation_options.h"

#include <charconv>

#include "server/grammar_fields.h"
#include "text/stop_strings.h"

namespace tw {
namespace {

void read_logit_bias(RequestFields& fields, SamplingParams& sampling) {
  constexpr const char* kName = "logit_bias";
  const Json* bias = fields.find(kName);
  if (!bias) return;
  if (!bias->is_object()) {
    return fields.fail(kName, *bias, "an object from token ids to numbers in [-100, 100]");
  }
  if (bias->size() > kMaxLogitBias) {
    return fields.fail(kName, *bias, fmt::format("at most {} entries", kMaxLogitBias));
  }
  for (const auto& [key, value] : bias->items()) {
    TokenId id = 0;
    const char* end = key.data() + key.size();
    const auto [stop, failure] = std::from_chars(key.data(), end, id);
    if (failure != std::errc{} || stop != end || id < 0) {
      return fields.fail(kName, Json(key), "a token id in decimal digits");
    }
    const double number = value.is_number() ? value.get<double>() : 1000;
    if (!(number >= -100 && number <= 100)) {
      return fields.fail(fmt::format("{}.{}", kName, shorten(key, 20)), value,
                         "a number in [-100, 100]");
    }
    sampling.logit_bias.emplace_back(id, static_cast<float>(number));
  }
}

void read_stops(RequestFields& fields, GenerationOptions& options) {
  const Json* found = fields.find("stop");
  if (!fields.read_strings("stop", options.stops)) return;
  // OpenAI's clients send "" and [] for "none".
  std::erase(options.stops, std::string());
  if (options.stops.size() > kMaxStopStrings) {
    return fields.fail("stop", *found, fmt::format("at most {} stop strings", kMaxStopStrings));
  }
  size_t bytes = 0;
  for (const std::string& stop : options.stops) bytes += stop.size();
  if (bytes > kMaxStopStringBytes) {
    return fields.fail(
        "stop", *found,
        fmt::format("stop strings of at most {} bytes together", kMaxStopStringBytes));
  }
  if (const Status status = validate_stop_strings(options.stops); !status) {
    fields.fail(bad_field(fields.full_name("stop"), status.error().message));
  }
}

void read_shared(RequestFields& fields, GenerationOptions& options) {
  SamplingParams& sampling = options.sampling;
  fields.read("temperature", sampling.temperature, {.min = 0});
  fields.read("top_p", sampling.top_p, {.min = 0, .max = 1, .min_allowed = false});
  if (fields.read("top_k", sampling.top_k, {.min = -1}) && sampling.top_k == 0) {
    sampling.top_k = -1;  // Hugging Face writes "all" as 0
  }
  fields.read("min_p", sampling.min_p, {.min = 0, .max = 1});
  fields.read("repetition_penalty", sampling.repetition_penalty,
              {.min = 0, .max = 2, .min_allowed = false});
  fields.read("frequency_penalty", sampling.frequency_penalty, {.min = -2, .max = 2});
  fields.read("presence_penalty", sampling.presence_penalty, {.min = -2, .max = 2});
  fields.read("ignore_eos", sampling.ignore_eos);
  if (fields.read_token_ids("stop_token_ids", sampling.stop_token_ids) &&
      sampling.stop_token_ids.size() > kMaxStopTokenIds) {
    fields.fail("stop_token_ids", *fields.find("stop_token_ids"),
                fmt::format("at most {} ids", kMaxStopTokenIds));
  }
  fields.read("no_stop_trim", options.no_stop_trim);
  fields.read("skip_special_tokens", options.skip_special_tokens);
  fields.read("n", options.n, {.min = 1, .max = kMaxChoices});
  read_logit_bias(fields, sampling);
  read_stops(fields, options);
  read_grammar(fields, options.grammar);
}

void take_default(const Json& config, const char* key, float& value, NumberRange range) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_number()) return;
  const double number = found->get<double>();
  const bool above = range.min_allowed ? number >= range.min : number > range.min;
  if (above && number <= range.max) value = static_cast<float>(number);
}

}  // namespace

SamplingParams sampling_defaults(const Json& generation_config) {
  SamplingParams sampling;
  if (!generation_config.is_object()) return sampling;
  take_default(generation_config, "temperature", sampling.temperature, {.min = 0, .max = 1e6});
  take_default(generation_config, "top_p", sampling.top_p,
               {.min = 0, .max = 1, .min_allowed = false});
  take_default(generation_config, "min_p", sampling.min_p, {.min = 0, .max = 1});
  take_default(generation_config, "repetition_penalty", sampling.repetition_penalty,
               {.min = 0, .max = 2, .min_allowed = false});
  const auto top_k = generation_config.find("top_k");
  if (top_k != generation_config.end()) {
    const auto number = exact_integer(*top_k);
    if (number && *number > 0 && *number <= std::numeric_limits<int32_t>::max()) {
      sampling.top_k = static_cast<int32_t>(*number);
    }
  }
  return sampling;
}

void read_openai_options(RequestFields& fields, GenerationOptions& options) {
  read_shared(fields, options);
  fields.read("max_tokens", options.max_new_tokens, {.min = 0});
  fields.read("max_completion_tokens", options.max_new_tokens, {.min = 0});
  fields.read("min_tokens", options.sampling.min_new_tokens, {.min = 0});
  fields.read_seed("seed", options.sampling.seed);
}

void read_native_options(RequestFields& fields, GenerationOptions& options) {
  read_shared(fields, options);
  fields.read("max_new_tokens", options.max_new_tokens, {.min = 0});
  fields.read("min_new_tokens", options.sampling.min_new_tokens, {.min = 0});
  fields.read_seed("sampling_seed", options.sampling.seed);
  fields.read_seed("seed", options.sampling.seed);
}

void read_openai_common(RequestFields& fields, OpenAiOptions& options) {
  fields.read("model", options.model);
  fields.read("lora_path", options.lora_path);
  fields.read("rid", options.rid);
  fields.read("stream", options.stream);
  if (const Json* stream_options = fields.find("stream_options")) {
    RequestFields nested(*stream_options, "stream_options");
    nested.read("include_usage", options.include_usage);
    if (nested.failed()) fields.fail(nested.take_error());
  }
  read_openai_options(fields, options.generation);
}

}  // namespace tw
