// What every command that runs a model shares: options, loading, and the engine made of them.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/expert_options.h"
#include "core/cpu.h"
#include "core/log.h"
#include "core/status.h"
#include "engine/engine.h"
#include "parallel/team_group.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/quantize/quantizer.h"

namespace tw {

struct ModelOptions {
  std::string model_path;         // a path, or a hub's name of the model
  std::string revision = "main";  // of the hub's
  std::string dtype = "auto";     // of activations: auto, bfloat16, float32
  std::string kv_cache_dtype = "auto";
  QuantizationOptions quantization;  // empty name: as the checkpoint is
  std::string chat_template_path;    // replaces the checkpoint's
  int threads = 0;                   // 0: one per physical core that may be used
  bool pin_threads = true;
  int tensor_parallel_size = 1;
  std::string numa = "auto";  // see parallel/placement.h
  std::string cpu_bind;
  ExpertOptions experts;
  int64_t context_length = 0;  // 0: the model's
  LogOptions log;
  EngineConfig engine;
  std::string draft_model_path;         // of --speculative-algorithm STANDALONE or EAGLE3
  int speculative_eagle_topk = 1;       // guesses for one place
  std::vector<std::string> lora_paths;  // NAME=FOLDER of adapters
  bool enable_lora = false;             // also without lora_paths: more can be loaded later
  int64_t max_lora_rank = 0;            // 0: that of lora_paths, or 64

  bool takes_adapters() const { return enable_lora || !lora_paths.empty(); }

  // Where the model lies: a hub's one is fetched first.
  Expected<std::filesystem::path> locate() const;

  // Declares the options on a command, in SGLang's spelling where one exists.
  void add_to(CLI::App& command);
  // The options of adapters, for commands whose requests can name them.
  void add_adapters_to(CLI::App& command);
};

// What --lora-paths names: name and folder of each.
Expected<std::vector<std::pair<std::string, std::string>>> adapter_paths(
    const ModelOptions& options);

// The checkpoint's own, whatever its form.
Expected<Tokenizer> load_tokenizer(const Checkpoint& checkpoint);

// A loaded model with everything around it. Members are destroyed in reverse order: the engine
// first, which the teams and the checkpoint outlive.
struct ModelSession {
  CpuFeatures features;
  std::unique_ptr<TeamGroup> teams;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Checkpoint> draft_checkpoint;  // of the draft model, where there is one
  std::unique_ptr<Checkpoint> eagle_checkpoint;  // of the head that guesses, where there is one
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string chat_template_problem;  // why there is none, for the error of a chat request
  std::unique_ptr<Model> model;       // until the engine takes it
  std::unique_ptr<Engine> engine;
  double load_seconds = 0;

  // Checkpoint and model alone.
  static Expected<ModelSession> load(const ModelOptions& options);
  // load(), then tokenizer, chat template and a running engine.
  static Expected<ModelSession> open(const ModelOptions& options);
};

}  // namespace tw
