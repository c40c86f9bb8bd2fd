// The engine: takes requests, schedules them in continuous batches, runs the model, samples.
//
// One engine thread does all of it; submit() and abort() may be called from any thread and only
// put a message into the engine's bounded inbox. Outputs arrive at the request's sink on the
// engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "engine/expert_recorder.h"
#include "engine/profile.h"
#include "engine/request.h"
#include "models/model.h"

namespace tw {

struct EngineConfig {
  int32_t page_size = 16;              // tokens per KV page
  int64_t max_total_tokens = 0;        // KV tokens; 0: from memory
  int64_t context_length = 0;          // longest prompt plus output; 0: the model's own
  double mem_fraction_static = 0.85;   // of usable memory, for weights and KV together
  int32_t chunked_prefill_size = 512;  // prompt tokens per step
  int32_t max_running_requests = 64;   // sequences per step
  int32_t max_queued_requests = 1024;  // beyond it, submit() answers resource_exhausted
  bool disable_radix_cache = false;
  std::vector<TokenId> eos_token_ids = {};
  std::string speculative_algorithm = {};    // empty: none; see make_drafter.cc
  int32_t speculative_num_steps = 0;         // guesses of a request in a step; 0: as many as pay
  int32_t speculative_num_draft_tokens = 8;  // of these, at most
  int32_t speculative_eagle_topk = 1;        // for one place; above 1 guesses form trees, of depth
                                             // speculative_num_steps
  bool enable_eplb = false;                  // move experts to where they balance the ranks' work
  int32_t eplb_rebalance_num_iterations = 1000;  // steps between two looks at it
  uint64_t random_seed = 0;                      // for requests without a seed of their own
};

// Counters since the start and gauges of now; a consistent copy.
struct EngineStats {
  int64_t num_requests_total = 0;
  int64_t num_requests_finished = 0;
  int64_t num_requests_aborted = 0;
  int64_t num_preemptions = 0;
  int64_t prompt_tokens_total = 0;
  int64_t cached_tokens_total = 0;
  int64_t generation_tokens_total = 0;
  int64_t draft_tokens_total = 0;
  int64_t accepted_draft_tokens_total = 0;
  int64_t num_steps = 0;
  int32_t num_running = 0;
  int32_t num_queued = 0;
  int64_t kv_tokens_capacity = 0;
  int64_t kv_tokens_used = 0;       // by running requests and the prefix cache
  int64_t kv_tokens_evictable = 0;  // of those, held by the prefix cache alone
  double expert_imbalance = 1;      // the busiest group of ranks' work by the mean
  int64_t expert_moves_total = 0;   // of the experts of one layer
  double last_step_seconds = 0;
  double forward_seconds_total = 0;       // that the model computed
  std::vector<StepCost> rank_costs = {};  // what its ranks moved and computed in them
  // Seconds since the engine thread last finished a step or found nothing to do: the watchdog.
  double seconds_since_progress = 0;
};

class Engine {
 public:
  // Sizes the KV cache, prepares the model and starts the engine thread. The draft model is for
  // STANDALONE, and must have the model's vocabulary; for NEXTN and EAGLE3 the model must have been
  // loaded with its next_token_model().
  static Expected<std::unique_ptr<Engine>> create(std::unique_ptr<Model> model, EngineConfig config,
                                                  std::unique_ptr<Model> draft_model = nullptr);
  // What other hosts than the first do with their part of the model, with the same configuration:
  // they prepare it and compute what the first host's engine says, until that shuts down. The
  // caller leads the compute threads from then on.
  static Status follow(std::unique_ptr<Model> model, EngineConfig config);
  virtual ~Engine() = default;

  // Queues a request and returns its id. Fails (and never calls the sink) when the prompt is
  // empty, longer than the context or the KV cache, has ids outside the vocabulary, a parameter is
  // out of range, the queue is full, or the engine shuts down.
  virtual Expected<uint64_t> submit(Request request) = 0;

  // Ends a request within a step; its sink gets finish_reason abort. Unknown ids are ignored.
  virtual void abort(uint64_t request_id) = 0;
  virtual void abort_all() = 0;

  // Packs an adapter for requests to name. Takes as long as reading it does, on the caller's
  // thread; what runs goes on. Fails when the model was loaded without room for adapters, or it
  // does not fit. It lives as long as somebody holds it.
  virtual Expected<std::shared_ptr<const LoraAdapter>> load_adapter(
      const LoraCheckpoint& checkpoint) = 0;

  // Drops the prefix cache. False (and nothing done) while requests run.
  virtual bool flush_cache() = 0;

  // Records a profile from the next step on, for num_steps steps (0: until it is stopped). Fails
  // while another is being taken.
  virtual Status start_profile(int64_t num_steps) = 0;
  // Ends the profile and gives it out. Fails where none was started. Both wait for the step that
  // is being computed.
  virtual Expected<std::unique_ptr<EngineProfile>> stop_profile() = 0;

  // Records how often each expert is chosen. See ExpertRecorder.
  virtual Status start_expert_recording() = 0;
  virtual Status stop_expert_recording() = 0;
  virtual Expected<ExpertDistribution> dump_expert_recording() = 0;

  virtual EngineStats stats() const = 0;
  virtual const ModelLimits& limits() const = 0;
  virtual const EngineConfig& config() const = 0;

  // Why the engine has stopped by itself, if it has: a host is gone. All requests have been told.
  virtual Status failure() const = 0;
  // Calls `hear` when that happens, on the engine thread, or now if it has happened. Once.
  virtual void on_failure(std::function<void()> hear) = 0;

  // Refuses new requests, aborts the running ones and stops the thread. Idempotent.
  virtual void shutdown() = 0;
};

}  // namespace tw
