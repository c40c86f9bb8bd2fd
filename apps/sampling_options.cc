#include "apps/sampling_options.h"

namespace tw {
namespace {

template <typename T>
void choose(T& field, const std::optional<T>& given, const Json& defaults, const char* key) {
  const auto found = defaults.find(key);
  if (given) {
    field = *given;
  } else if (found != defaults.end() && found->is_number()) {
    field = found->get<T>();
  }
}

}  // namespace

void SamplingOptions::add_to(CLI::App& command) {
  command.add_option("--temperature", temperature, "0 picks the likeliest token each time");
  command.add_option("--top-p", top_p, "Sample from the likeliest tokens that sum to this");
  command.add_option("--top-k", top_k, "Sample from this many likeliest tokens (-1: all)");
  command.add_option("--min-p", min_p, "Drop tokens less likely than this share of the best");
  command.add_option("--repetition-penalty", repetition_penalty, "Above 1 discourages repeats");
  command.add_option("--seed", seed, "Same seed, same text");
  command
      .add_option("--max-new-tokens,--max-tokens,-n", max_new_tokens, "Longest output, in tokens")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_flag("--ignore-eos", ignore_eos, "Go on past the end-of-sequence token");
  command.add_option("--stop", stop, "Stop before this text (may be repeated)");
}

SamplingParams SamplingOptions::resolve(const Json& generation_config) const {
  SamplingParams params;
  choose(params.temperature, temperature, generation_config, "temperature");
  choose(params.top_p, top_p, generation_config, "top_p");
  choose(params.top_k, top_k, generation_config, "top_k");
  choose(params.min_p, min_p, generation_config, "min_p");
  choose(params.repetition_penalty, repetition_penalty, generation_config, "repetition_penalty");
  if (params.top_k == 0) params.top_k = -1;  // generation_config.json writes "all" as 0
  params.seed = seed;
  params.max_new_tokens = max_new_tokens;
  params.ignore_eos = ignore_eos;
  return params;
}

}  // namespace tw
