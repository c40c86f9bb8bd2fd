// The options of every command that runs a model.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apps/expert_options.h"
#include "apps/host_options.h"
#include "core/log.h"
#include "core/status.h"
#include "engine/engine.h"
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
  HostOptions hosts;
  int64_t context_length = 0;    // 0: the model's
  bool measure_machine = false;  // what it can do at most, before the model is loaded
  LogOptions log;
  EngineConfig engine;
  std::string draft_model_path;         // of --speculative-algorithm STANDALONE or EAGLE3
  std::vector<std::string> lora_paths;  // NAME=FOLDER of adapters
  bool enable_lora = false;             // also without lora_paths: more can be loaded later
  int64_t max_lora_rank = 0;            // 0: that of lora_paths, or 64
  std::string lora_path;                // folder of the one adapter of a terminal's command

  bool takes_adapters() const { return enable_lora || !lora_paths.empty() || !lora_path.empty(); }

  EngineConfig engine_config() const;

  // Where the model lies: a hub's one is fetched first.
  Expected<std::filesystem::path> locate() const;

  // Declares the options on a command, in SGLang's spelling where one exists.
  void add_to(CLI::App& command);
  // The options of adapters, for commands whose requests can name them.
  void add_adapters_to(CLI::App& command);
  // That of the one adapter, for commands that generate themselves.
  void add_adapter_to(CLI::App& command);

 private:
  void add_scheduling_to(CLI::App& command);
  void add_speculation_to(CLI::App& command);
};

// What --lora-paths names: name and folder of each.
Expected<std::vector<std::pair<std::string, std::string>>> adapter_paths(
    const ModelOptions& options);

}  // namespace tw
