// Sampling flags of the commands that generate text in the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "engine/request.h"

namespace tw {

struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  int32_t max_new_tokens = 256;
  bool ignore_eos = false;
  std::vector<std::string> stop;

  void add_to(CLI::App& command);
  // What the user gave, over the checkpoint's generation_config.json, over the defaults.
  SamplingParams resolve(const Json& generation_config) const;
};

}  // namespace tw
