// How the experts of a mixture lie on the ranks: options, and the file that says what to expect.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "core/status.h"
#include "engine/engine.h"
#include "parallel/expert_placement.h"

namespace tw {

struct ExpertOptions {
  int parallel_size = 1;  // groups of ranks, each with some experts whole
  int num_redundant = 0;
  std::string init_location = "trivial";  // or a file

  // Declares the options, in SGLang's spelling.
  void add_to(CLI::App& command, EngineConfig& engine);

  // Says which options do nothing without groups to lie on.
  void warn_of_no_effect(const EngineConfig& engine) const;

  // What the file says, or nothing.
  Expected<ExpertChoices> expected_choices() const;
};

// What POST /dump_expert_distribution_record answered. Errors name the file and what it lacks.
Expected<ExpertChoices> read_expert_choices(const std::string& path);

}  // namespace tw
