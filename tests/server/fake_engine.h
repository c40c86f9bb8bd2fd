// An engine without a model: every request gets the same reply, byte by byte, then the end token.
//
// Deterministic in what it says; when is up to the test: hold() keeps it from going on, so that
// requests stay in flight, and everything that the server asked of it can be looked at.
#pragma once

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace tw {

class FakeEngine final : public Engine {
 public:
  static constexpr TokenId kEndToken = 256;  // ids below are bytes
  static constexpr int64_t kVocabSize = 257;

  explicit FakeEngine(std::string reply, int64_t context_length = 512) : reply_(std::move(reply)) {
    limits_.vocab_size = kVocabSize;
    limits_.max_position_embeddings = context_length;
    limits_.hidden_size = 3;
    config_.max_queued_requests = 8;
    config_.max_running_requests = 8;
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override { shutdown(); }

  Expected<uint64_t> submit(Request request) override {
    if (Status status = request.sampling.validate(kVocabSize); !status) {
      return forward_error(status);
    }
    std::lock_guard lock(mutex_);
    if (closed_) return error(ErrorCode::unavailable, "the engine is shutting down");
    if (static_cast<int32_t>(running_.size()) >=
        config_.max_queued_requests + config_.max_running_requests) {
      return error(ErrorCode::resource_exhausted, "the queue is full");
    }
    request.id = ++last_id_;
    submitted_.push_back(request);
    submitted_.back().sink = nullptr;
    ++stats_.num_requests_total;
    running_.push_back({std::move(request), 0});
    changed_.notify_all();
    return last_id_;
  }

  void abort(uint64_t request_id) override {
    std::lock_guard lock(mutex_);
    aborts_.push_back(request_id);
    changed_.notify_all();
  }

  void abort_all() override {
    std::lock_guard lock(mutex_);
    for (const Running& entry : running_) aborts_.push_back(entry.request.id);
    changed_.notify_all();
  }

  // Fits any adapter.
  Expected<std::shared_ptr<const LoraAdapter>> load_adapter(const LoraCheckpoint&) override {
    std::lock_guard lock(mutex_);
    auto adapter = std::make_shared<LoraAdapter>();
    adapter->id = ++last_adapter_;
    return adapter;
  }

  bool flush_cache() override {
    std::lock_guard lock(mutex_);
    return running_.empty();
  }

  Status start_profile(int64_t num_steps) override {
    std::lock_guard lock(mutex_);
    if (profile_) return error(ErrorCode::invalid_argument, "a profile is being taken");
    profile_ = std::make_unique<EngineProfile>(1, num_steps);
    profile_->add({.begin_ns = 1000, .scheduled_ns = 2000, .forwarded_ns = 5000, .end_ns = 6000});
    return {};
  }
  Expected<std::unique_ptr<EngineProfile>> stop_profile() override {
    std::lock_guard lock(mutex_);
    if (!profile_) return error(ErrorCode::invalid_argument, "no profile was started");
    return std::move(profile_);
  }

  Status start_expert_recording() override {
    return error(ErrorCode::invalid_argument, "the model has no experts to record");
  }
  Status stop_expert_recording() override { return {}; }
  Expected<ExpertDistribution> dump_expert_recording() override {
    ExpertDistribution distribution;
    distribution.layers.push_back({"model.layers.0.mlp", {3, 1}, {2, {{0}, {1}}}});
    return distribution;
  }

  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats copy = stats_;
    copy.num_running = static_cast<int32_t>(running_.size());
    copy.kv_tokens_capacity = 4096;
    copy.draft_tokens_total = 8;
    copy.accepted_draft_tokens_total = 6;
    copy.forward_seconds_total = 1.5;
    copy.rank_costs = {{.bytes = 3000, .operations = 5000}, {.bytes = 4000, .operations = 5000}};
    return copy;
  }
  const ModelLimits& limits() const override { return limits_; }
  const EngineConfig& config() const override { return config_; }

  Status failure() const override { return {}; }
  void on_failure(std::function<void()>) override {}

  void shutdown() override {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  // For tests.
  void hold() { set_held(true); }
  void release() { set_held(false); }
  // A pause after each token, to spread a generation over time.
  void set_step_time(std::chrono::microseconds pause) {
    std::lock_guard lock(mutex_);
    step_time_ = pause;
  }
  void set_seconds_since_progress(double seconds) {
    std::lock_guard lock(mutex_);
    stats_.seconds_since_progress = seconds;
  }
  void fail_next(Error failure) {
    std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  size_t num_running() const {
    std::lock_guard lock(mutex_);
    return running_.size();
  }
  int64_t num_aborted() const {
    std::lock_guard lock(mutex_);
    return stats_.num_requests_aborted;
  }
  std::vector<Request> submitted() const {
    std::lock_guard lock(mutex_);
    return submitted_;
  }

 private:
  struct Running {
    Request request;
    int32_t num_output = 0;
  };

  void set_held(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!closed_) {
      changed_.wait(
          lock, [this] { return closed_ || !aborts_.empty() || (!held_ && !running_.empty()); });
      const auto aborts = std::exchange(aborts_, {});
      for (uint64_t id : aborts) end_with_abort(id);
      if (held_ || running_.empty() || closed_) continue;
      for (size_t i = 0; i < running_.size();) {
        if (step(running_[i])) {
          running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      // Others must get the lock between two steps, also when these follow at once.
      if (step_time_.count() > 0) {
        changed_.wait_for(lock, step_time_);
      } else {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      }
    }
    while (!running_.empty()) end_with_abort(running_.front().request.id);
  }

  void end_with_abort(uint64_t id) {
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [id](const Running& entry) { return entry.request.id == id; });
    if (found == running_.end()) return;
    ++stats_.num_requests_aborted;
    EngineOutput output = output_of(*found);
    output.finish_reason = FinishReason::abort;
    found->request.sink(std::move(output));
    running_.erase(found);
  }

  static EngineOutput output_of(const Running& entry) {
    EngineOutput output;
    output.request_id = entry.request.id;
    output.num_prompt_tokens = static_cast<int32_t>(entry.request.prompt.size());
    output.num_cached_tokens = 3;
    output.num_output_tokens = entry.num_output;
    return output;
  }

  TokenEvent event_of(const Request& request, TokenId token) const {
    TokenEvent event{token, true, -0.5f, {}};
    for (int32_t i = 0; i < request.num_top_logprobs; ++i) {
      event.top_logprobs.push_back({i == 0 ? token : 'a' + i, -0.5f - static_cast<float>(i)});
    }
    return event;
  }

  // One token; true when it was the last.
  bool step(Running& entry) {
    const Request& request = entry.request;
    if (failure_) {
      EngineOutput output = output_of(entry);
      output.finish_reason = FinishReason::error;
      output.error = std::exchange(failure_, std::nullopt);
      request.sink(std::move(output));
      return true;
    }
    if (request.pooling || !request.label_token_ids.empty()) return answer_about_prompt(entry);
    const auto position = static_cast<size_t>(entry.num_output);
    const bool at_end = position % (reply_.size() + 1) == reply_.size();
    const TokenId token =
        at_end ? kEndToken : static_cast<uint8_t>(reply_[position % (reply_.size() + 1)]);
    EngineOutput output = output_of(entry);
    if (entry.num_output == 0 && request.return_prompt_logprob) {
      for (TokenId id : request.prompt) output.prompt_logprobs.push_back(event_of(request, id));
    }
    if (request.sampling.max_new_tokens > 0) {
      output.tokens.push_back(event_of(request, token));
      output.num_output_tokens = ++entry.num_output;
      ++stats_.generation_tokens_total;
    }
    const auto& stops = request.sampling.stop_token_ids;
    if ((token == kEndToken && !request.sampling.ignore_eos) ||
        std::find(stops.begin(), stops.end(), token) != stops.end()) {
      output.finish_reason = FinishReason::stop;
      output.matched_stop_token = token;
    } else if (entry.num_output >= request.sampling.max_new_tokens) {
      output.finish_reason = FinishReason::length;
    }
    const bool done = output.finish_reason != FinishReason::none;
    if (done) ++stats_.num_requests_finished;
    request.sink(std::move(output));
    return done;
  }

  // The embedding is [length of the prompt, 2, 4]; label n has the probability 1 / (n + 1).
  bool answer_about_prompt(const Running& entry) {
    EngineOutput output = output_of(entry);
    output.finish_reason = FinishReason::stop;
    if (entry.request.pooling) {
      output.embedding = {static_cast<float>(entry.request.prompt.size()), 2.0f, 4.0f};
    }
    for (const TokenId label : entry.request.label_token_ids) {
      output.label_logprobs.push_back(-std::log(static_cast<float>(label + 1)));
    }
    ++stats_.num_requests_finished;
    entry.request.sink(std::move(output));
    return true;
  }

  const std::string reply_;
  ModelLimits limits_;
  EngineConfig config_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Running> running_;
  std::vector<uint64_t> aborts_;
  std::vector<Request> submitted_;
  std::optional<Error> failure_;
  EngineStats stats_;
  std::chrono::microseconds step_time_{0};
  uint64_t last_id_ = 0;
  uint64_t last_adapter_ = 0;
  bool held_ = false;
  bool closed_ = false;
  std::unique_ptr<EngineProfile> profile_;
  std::thread thread_;
};

}  // namespace tw
