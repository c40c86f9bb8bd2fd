// The small real model of the tests, loaded and served by an engine, for greedy comparisons.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu.h"
#include "core/thread_team.h"
#include "engine/engine.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace tw::testing_support {

inline std::filesystem::path real_model_path() {
  const char* folder = std::getenv("TW_MODEL_DIR");
  const std::filesystem::path base =
      folder != nullptr ? folder : std::filesystem::path(TW_SOURCE_DIR) / ".cache/models";
  return base / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

struct LoadedModel {
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
};

inline LoadedModel load(const std::filesystem::path& path, int threads,
                        kernels::ActivationPrecision precision,
                        std::optional<kernels::ActivationPrecision> prefill_precision = {}) {
  LoadedModel loaded;
  loaded.team = std::make_unique<ThreadTeam>(threads);
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().message);
  if (!checkpoint) return loaded;
  loaded.checkpoint = std::move(*checkpoint);
  WeightLoader loader(*loaded.checkpoint, *loaded.team, {*usable_cpu_features(), precision});
  loader.prefill_precision = prefill_precision;
  auto model = load_model(loader);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  if (model) loaded.model = std::move(*model);
  return loaded;
}

// Runs requests together and collects their tokens.
class Collector {
 public:
  explicit Collector(size_t count) : outputs_(count), pending_(count) {}

  OutputSink sink(size_t index) {
    return [this, index](EngineOutput&& output) {
      std::lock_guard lock(mutex_);
      if (output.error) ADD_FAILURE() << output.error->message;
      for (const TokenEvent& event : output.tokens) {
        if (event.has_token) outputs_[index].push_back(event.token);
      }
      if (output.finish_reason != FinishReason::none && --pending_ == 0) done_.notify_all();
    };
  }

  std::vector<std::vector<TokenId>> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
    return outputs_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::vector<TokenId>> outputs_;
  size_t pending_;
};

// Greedy continuations of all prompts, submitted at once.
inline std::vector<std::vector<TokenId>> greedy(Engine& engine,
                                                const std::vector<std::vector<TokenId>>& prompts,
                                                int32_t max_new_tokens) {
  Collector collector(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request;
    request.prompt = prompts[i];
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = max_new_tokens;
    request.sampling.ignore_eos = true;
    request.sink = collector.sink(i);
    const auto id = engine.submit(std::move(request));
    EXPECT_TRUE(id) << (id ? "" : id.error().message);
  }
  return collector.wait();
}

}  // namespace tw::testing_support
