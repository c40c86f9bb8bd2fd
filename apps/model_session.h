// What every command that runs a model shares: loading, and the engine made of what was loaded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/model_options.h"
#include "core/cpu.h"
#include "core/machine_limits.h"
#include "core/status.h"
#include "engine/engine.h"
#include "parallel/host_link.h"
#include "parallel/team_group.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace tw {

// The checkpoint's own, whatever its form.
Expected<Tokenizer> load_tokenizer(const Checkpoint& checkpoint);

// A loaded model with everything around it. Members are destroyed in reverse order: the engine
// first, which the teams and the checkpoint outlive.
struct ModelSession {
  CpuFeatures features;
  std::unique_ptr<TeamGroup> teams;
  std::vector<RankLimits> limits;  // of each rank, where they were measured
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Checkpoint> draft_checkpoint;  // of the draft model, where there is one
  std::unique_ptr<Checkpoint> eagle_checkpoint;  // of the head that guesses, where there is one
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string chat_template_problem;  // why there is none, for the error of a chat request
  std::unique_ptr<Model> model;       // until the engine takes it
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const LoraAdapter> adapter;  // of --lora-path
  double load_seconds = 0;

  // Checkpoint and model alone.
  static Expected<ModelSession> load(const ModelOptions& options, HostLink* link = nullptr);
  // load(), then tokenizer, chat template and a running engine. `link`: this is the first of
  // several hosts; null: the only one.
  static Expected<ModelSession> open(const ModelOptions& options, HostLink* link = nullptr);
  // What the other hosts do with the same options: they compute their part until the first stops.
  static Status follow(const ModelOptions& options, HostLink& link);
};

}  // namespace tw
