#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <variant>

#include "core/check.h"
#include "core/log.h"
#include "engine/expert_balancer.h"
#include "engine/kv_budget.h"
#include "engine/scheduler.h"
#include "engine/speculative/make_drafter.h"

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAliveInterval{1000};

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

int64_t nanoseconds(Clock::time_point time) {
  return time.time_since_epoch() / std::chrono::nanoseconds(1);
}

Error not_numbers(const char* what) {
  return {
      ErrorCode::internal,
      fmt::format("the model's {} are not numbers (NaN); the checkpoint's weights may be broken",
                  what)};
}

// Messages from other threads to the engine thread.
struct Submit {
  std::unique_ptr<Sequence> sequence;
};
struct Abort {
  uint64_t request_id;
};
struct AbortAll {};
struct Flush {
  std::promise<bool> done;
};
struct StartProfile {
  int64_t num_steps;
  std::promise<Status> done;
};
struct StopProfile {
  std::promise<Expected<std::unique_ptr<EngineProfile>>> done;
};
struct StartExpertRecording {
  std::promise<Status> done;
};
struct StopExpertRecording {
  std::promise<Status> done;
};
struct DumpExpertRecording {
  std::promise<Expected<ExpertDistribution>> done;
};
using Message = std::variant<Submit, Abort, AbortAll, Flush, StartProfile, StopProfile,
                             StartExpertRecording, StopExpertRecording, DumpExpertRecording>;

// Bounded by the limits that submit() keeps: a message is a request or concerns one.
class Inbox {
 public:
  // False when closed; the message is then dropped.
  bool push(Message message) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
    return true;
  }

  // Swaps the messages out; waits so long until there are some or the inbox is closed. False once
  // closed.
  bool take(std::vector<Message>& out, std::chrono::milliseconds wait) {
    out.clear();
    std::unique_lock lock(mutex_);
    if (wait.count() > 0) {
      arrived_.wait_for(lock, wait, [this] { return closed_ || !messages_.empty(); });
    }
    out.swap(messages_);
    return !closed_;
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Message> messages_;
  bool closed_ = false;
};

class ThreadedEngine final : public Engine {
 public:
  ThreadedEngine(std::unique_ptr<Model> model, std::unique_ptr<Drafter> drafter,
                 const EngineConfig& config, const SchedulerConfig& scheduler_config,
                 int64_t context_length, const CpuFeatures& features)
      : config_(config),
        model_(std::move(model)),
        drafter_(std::move(drafter)),
        limits_(model_->limits()),
        max_sequence_tokens_(std::min(
            context_length, int64_t{scheduler_config.num_pages} * scheduler_config.page_size)),
        scheduler_(scheduler_config),
        sampler_(features, limits_.vocab_size),
        expert_recorder_(*model_),
        expert_balancer_(*model_, config.enable_eplb ? config.eplb_rebalance_num_iterations : 0) {
    limits_.max_position_embeddings = context_length;
    counters_.rank_costs.resize(static_cast<size_t>(model_->num_ranks()));
    stats_ = counters_;
    stats_.kv_tokens_capacity = scheduler_.capacity_tokens();
    thread_ = std::thread([this] { run(); });
  }

  ~ThreadedEngine() override { shutdown(); }

  Expected<uint64_t> submit(Request request) override;

  void abort(uint64_t request_id) override { inbox_.push(Abort{request_id}); }
  void abort_all() override { inbox_.push(AbortAll{}); }

  Expected<std::shared_ptr<const LoraAdapter>> load_adapter(
      const LoraCheckpoint& checkpoint) override {
    auto adapter = model_->load_adapter(checkpoint);
    if (!adapter) return forward_error(adapter);
    adapter->id = next_adapter_id_.fetch_add(1);
    return std::make_shared<const LoraAdapter>(std::move(*adapter));
  }

  bool flush_cache() override {
    Flush flush;
    std::future<bool> done = flush.done.get_future();
    return inbox_.push(std::move(flush)) && done.get();
  }

  Status start_profile(int64_t num_steps) override { return ask(StartProfile{num_steps, {}}); }
  Expected<std::unique_ptr<EngineProfile>> stop_profile() override { return ask(StopProfile()); }

  Status start_expert_recording() override { return ask(StartExpertRecording()); }
  Status stop_expert_recording() override { return ask(StopExpertRecording()); }
  Expected<ExpertDistribution> dump_expert_recording() override {
    return ask(DumpExpertRecording());
  }

  EngineStats stats() const override {
    std::lock_guard lock(stats_mutex_);
    EngineStats copy = stats_;
    copy.num_queued = std::max(0, unfinished_.load() - copy.num_running);
    copy.seconds_since_progress = idle_ ? 0 : seconds_between(last_progress_, Clock::now());
    return copy;
  }

  const ModelLimits& limits() const override { return limits_; }
  const EngineConfig& config() const override { return config_; }

  Status failure() const override {
    std::lock_guard lock(failure_mutex_);
    return failure_;
  }
  void on_failure(std::function<void()> hear) override {
    {
      std::lock_guard lock(failure_mutex_);
      if (failure_) {
        hears_failure_ = std::move(hear);
        return;
      }
    }
    hear();
  }

  void shutdown() override {
    inbox_.close();
    std::lock_guard lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  // Waits for the engine thread's answer, which comes between two steps.
  template <typename Question>
  auto ask(Question question) -> decltype(question.done.get_future().get()) {
    auto done = question.done.get_future();
    if (!inbox_.push(std::move(question))) return shutting_down();
    return done.get();
  }

  Status check(const Request& request) const;
  tl::unexpected<Error> shutting_down() const {
    if (const Status failed = failure(); !failed) return tl::unexpected(failed.error());
    return error(ErrorCode::unavailable, "the engine is shutting down");
  }

  // The engine thread.
  void run();
  void handle(Message& message);
  Status begin_profile(int64_t num_steps);
  Expected<std::unique_ptr<EngineProfile>> end_profile();
  void step();
  void fail(const Error& problem);
  void process(const ScheduledSequence& entry, Matrix<const float> logits);
  void pool(const ScheduledSequence& entry);
  void score_labels(Sequence& sequence, std::span<const float> logits);
  void score_prompt(const ScheduledSequence& entry, Matrix<const float> logits);
  void draft();
  void reserve_branches();
  DraftRequest drafts_wanted(Sequence& sequence, int32_t num_decoding) const;
  void accept_draft(const ScheduledSequence& entry, const DraftTree& drafts, int32_t node);
  // False when the sequence ended, and is gone.
  bool sample(Sequence& sequence, std::span<const float> logits);
  bool is_stop_token(const Request& request, TokenId token) const;
  std::span<const TokenId> forbidden_tokens(const Sequence& sequence);
  void count_prompt(const Sequence& sequence);
  EngineOutput output_of(Sequence& sequence) const;
  void end(std::unique_ptr<Sequence> sequence, EngineOutput output);
  void end_with(std::unique_ptr<Sequence> sequence, FinishReason reason);
  void end_with_error(std::unique_ptr<Sequence> sequence, const Error& problem);
  void publish(bool idle);

  const EngineConfig config_;
  const std::unique_ptr<Model> model_;
  const std::unique_ptr<Drafter> drafter_;  // null: no drafts
  ModelLimits limits_;
  const int64_t max_sequence_tokens_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<uint64_t> next_adapter_id_{1};  // 0 is the model's own
  std::atomic<int32_t> unfinished_{0};
  Inbox inbox_;

  // Of the engine thread alone.
  Scheduler scheduler_;
  Sampler sampler_;
  ExpertRecorder expert_recorder_;
  ExpertBalancer expert_balancer_;
  DraftCosts draft_costs_;
  std::vector<DraftRequest> draft_requests_;
  std::vector<Message> messages_;
  std::vector<TokenId> forbidden_;
  EngineStats counters_;
  std::unique_ptr<EngineProfile> profile_;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;
  Clock::time_point last_progress_ = Clock::now();
  bool idle_ = true;

  mutable std::mutex failure_mutex_;
  Status failure_;
  std::function<void()> hears_failure_;

  std::mutex join_mutex_;
  std::thread thread_;
};

Status ThreadedEngine::check(const Request& request) const {
  if (request.prompt.empty()) {
    return error(ErrorCode::invalid_argument, "the prompt is empty; give at least one token");
  }
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length >= limits_.max_position_embeddings) {
    return error(ErrorCode::invalid_argument,
                 "the prompt has {} tokens; the context length is {} tokens, prompt and output "
                 "together",
                 length, limits_.max_position_embeddings);
  }
  if (length >= max_sequence_tokens_) {
    return error(ErrorCode::invalid_argument,
                 "the prompt has {} tokens; the KV cache holds {} (--max-total-tokens, "
                 "--mem-fraction-static)",
                 length, max_sequence_tokens_);
  }
  for (TokenId id : request.prompt) {
    if (id < 0 || id >= limits_.vocab_size) {
      return error(ErrorCode::invalid_argument,
                   "the prompt holds token id {}; the vocabulary has ids 0 to {}", id,
                   limits_.vocab_size - 1);
    }
  }
  if (request.num_top_logprobs < 0 || request.num_top_logprobs > 20) {
    return error(ErrorCode::invalid_argument, "top logprobs is {}; it must be in [0, 20]",
                 request.num_top_logprobs);
  }
  for (TokenId id : request.label_token_ids) {
    if (id < 0 || id >= limits_.vocab_size) {
      return error(ErrorCode::invalid_argument,
                   "token id {} is to be scored; the vocabulary has ids 0 to {}", id,
                   limits_.vocab_size - 1);
    }
  }
  return request.sampling.validate(limits_.vocab_size);
}

Expected<uint64_t> ThreadedEngine::submit(Request request) {
  if (Status status = check(request); !status) return forward_error(status);
  const int32_t limit = config_.max_running_requests + config_.max_queued_requests;
  if (unfinished_.fetch_add(1) >= limit) {
    unfinished_.fetch_sub(1);
    return error(ErrorCode::resource_exhausted,
                 "{} requests are running or waiting, as many as allowed; try again later", limit);
  }
  const uint64_t id = next_id_.fetch_add(1);
  request.id = id;
  auto sequence = std::make_unique<Sequence>();
  sequence->sampler = Sampler::start(request, config_.random_seed + id);
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  if (!inbox_.push(Submit{std::move(sequence)})) {
    unfinished_.fetch_sub(1);
    return shutting_down();
  }
  return id;
}

void ThreadedEngine::run() {
  model_->adopt_caller();
  if (drafter_) drafter_->adopt_caller();
  for (;;) {
    const bool idle = scheduler_.idle();
    if (idle) publish(true);
    const bool open = inbox_.take(messages_, idle ? kAliveInterval : std::chrono::milliseconds(0));
    for (Message& message : messages_) handle(message);
    if (!open) break;
    if (!scheduler_.idle()) {
      step();
    } else if (messages_.empty()) {
      if (const Status status = model_->keep_alive(); !status) fail(status.error());
    }
  }
  const Status failed = failure();
  for (auto& sequence : scheduler_.remove_all()) {
    if (failed) {
      end_with(std::move(sequence), FinishReason::abort);
    } else {
      end_with_error(std::move(sequence), failed.error());
    }
  }
  publish(true);
  std::function<void()> hear;
  {
    std::lock_guard lock(failure_mutex_);
    if (!failed) hear = std::move(hears_failure_);
  }
  if (hear) hear();
}

void ThreadedEngine::handle(Message& message) {
  if (auto* submitted = std::get_if<Submit>(&message)) {
    ++counters_.num_requests_total;
    scheduler_.add(std::move(submitted->sequence));
  } else if (const auto* abort = std::get_if<Abort>(&message)) {
    if (auto sequence = scheduler_.remove(abort->request_id)) {
      end_with(std::move(sequence), FinishReason::abort);
    }
  } else if (std::holds_alternative<AbortAll>(message)) {
    for (auto& sequence : scheduler_.remove_all()) {
      end_with(std::move(sequence), FinishReason::abort);
    }
  } else if (auto* flush = std::get_if<Flush>(&message)) {
    const bool flushed = scheduler_.flush_prefix_cache();
    if (flushed && drafter_) drafter_->forget();
    flush->done.set_value(flushed);
  } else if (auto* start = std::get_if<StartProfile>(&message)) {
    start->done.set_value(begin_profile(start->num_steps));
  } else if (auto* stop = std::get_if<StopProfile>(&message)) {
    stop->done.set_value(end_profile());
  } else if (auto* start_record = std::get_if<StartExpertRecording>(&message)) {
    start_record->done.set_value(expert_recorder_.start());
  } else if (auto* stop_record = std::get_if<StopExpertRecording>(&message)) {
    stop_record->done.set_value(expert_recorder_.stop());
  } else if (auto* dump = std::get_if<DumpExpertRecording>(&message)) {
    dump->done.set_value(expert_recorder_.dump());
  }
}

Status ThreadedEngine::begin_profile(int64_t num_steps) {
  if (profile_) {
    return error(ErrorCode::invalid_argument, "a profile is being taken; stop it first");
  }
  profile_ = std::make_unique<EngineProfile>(model_->num_threads(), num_steps);
  model_->set_trace(&profile_->model_steps());
  return {};
}

Expected<std::unique_ptr<EngineProfile>> ThreadedEngine::end_profile() {
  if (!profile_) return error(ErrorCode::invalid_argument, "no profile was started");
  model_->set_trace(nullptr);
  return std::move(profile_);
}

void ThreadedEngine::step() {
  const auto begin = Clock::now();
  if (drafter_) draft();
  const auto scheduled = scheduler_.schedule();
  TW_CHECK(!scheduled.empty());
  const Batch batch = scheduler_.batch();
  EngineStepEvent event{.begin_ns = nanoseconds(begin),
                        .scheduled_ns = nanoseconds(Clock::now()),
                        .num_tokens = batch.num_tokens(),
                        .num_seqs = batch.num_seqs()};
  const Matrix<const float> logits = model_->forward(batch);
  event.forwarded_ns = nanoseconds(Clock::now());
  if (const Status status = model_->health(); !status) return fail(status.error());
  counters_.forward_seconds_total +=
      static_cast<double>(event.forwarded_ns - event.scheduled_ns) * 1e-9;
  model_->add_costs(batch, counters_.rank_costs);
  scheduler_.commit();
  if (drafter_) {
    if (batch.num_generated_tokens == batch.num_tokens()) {
      const int64_t elapsed = event.forwarded_ns - event.scheduled_ns;
      draft_costs_.observe_step(batch.num_tokens(), static_cast<double>(elapsed) * 1e-9);
    }
    drafter_->follow(scheduled, model_->next_token_states());
  }
  // Finishing a sequence invalidates nothing but its own entry.
  for (const ScheduledSequence& entry : scheduled) process(entry, logits);
  ++counters_.num_steps;
  const auto end = Clock::now();
  counters_.last_step_seconds = seconds_between(begin, end);
  event.end_ns = nanoseconds(end);
  if (profile_ && !profile_->complete()) {
    profile_->add(event);
    if (profile_->complete()) model_->set_trace(nullptr);
  }
  expert_balancer_.after_step();
  publish(false);
}

// Nothing can be computed any more: what runs and what comes is told why.
void ThreadedEngine::fail(const Error& problem) {
  log::error("the engine stops: {}", problem.message);
  {
    std::lock_guard lock(failure_mutex_);
    failure_ = tl::unexpected(problem);
  }
  inbox_.close();
}

void ThreadedEngine::draft() {
  const auto decodes = [](const auto& sequence) {
    return sequence->decoding() && sequence->next_is_generated();
  };
  const auto num_decoding =
      static_cast<int32_t>(std::ranges::count_if(scheduler_.running(), decodes));
  draft_requests_.clear();
  for (const auto& sequence : scheduler_.running()) {
    sequence->drafts.clear();
    // Of its guesses, those stay that were right.
    sequence->num_drafter_computed =
        std::min(sequence->num_drafter_computed, sequence->num_computed);
    if (!decodes(sequence)) continue;
    DraftRequest request = drafts_wanted(*sequence, num_decoding);
    request.limit = scheduler_.reserve_drafts(*sequence, request.limit);
    if (request.limit > 0) draft_requests_.push_back(request);
  }
  if (draft_requests_.empty()) return;
  const auto begin = Clock::now();
  drafter_->propose(draft_requests_);
  const int32_t rounds = std::ranges::max_element(draft_requests_, {}, &DraftRequest::limit)->limit;
  draft_costs_.observe_guess(static_cast<int32_t>(draft_requests_.size()),
                             seconds_between(begin, Clock::now()) / rounds);
  if (config_.speculative_eagle_topk > 1) reserve_branches();
}

void ThreadedEngine::reserve_branches() {
  for (const DraftRequest& request : draft_requests_) {
    Sequence& sequence = *request.sequence;
    scheduler_.reserve_branches(sequence);
    const BranchPages& branches = sequence.branch_pages;
    if (sequence.num_computed % config_.page_size == 0) continue;
    const PageId from = sequence.pages[static_cast<size_t>(branches.first)];
    for (int32_t branch = 1; branch < sequence.drafts.num_branches(); ++branch) {
      model_->copy_page(to_index(from), to_index(branches.of(branch).front()));
    }
  }
}

DraftRequest ThreadedEngine::drafts_wanted(Sequence& sequence, int32_t num_decoding) const {
  // The last token of all needs no guess.
  const int64_t room =
      std::min<int64_t>(sequence.request.sampling.max_new_tokens - sequence.num_output(),
                        max_sequence_tokens_ - sequence.num_tokens()) -
      1;
  const int64_t limit = std::min<int64_t>(
      {config_.speculative_num_draft_tokens, kMaxDraftsOfAll / num_decoding, room});
  const auto most = static_cast<int32_t>(std::max<int64_t>(0, limit));
  DraftRequest request{.sequence = &sequence, .num_drafts = most};
  request.width = config_.speculative_eagle_topk;
  if (config_.speculative_num_steps > 0) {
    request.limit = std::min(config_.speculative_num_steps, most);
  } else {
    request.limit =
        sequence.draft_length.next(draft_costs_, counters_.num_steps, num_decoding, most);
    request.least_chance = static_cast<float>(sequence.draft_length.least_chance());
    if (sequence.draft_length.is_trial()) request.num_drafts = 1;
  }
  return request;
}

void ThreadedEngine::process(const ScheduledSequence& entry, Matrix<const float> logits) {
  Sequence& sequence = *entry.sequence;
  if (sequence.request.pooling) return pool(entry);
  if (sequence.request.return_prompt_logprob && sequence.num_output() == 0) {
    score_prompt(entry, logits);
  }
  if (!entry.samples) return;
  if (!sequence.request.label_token_ids.empty()) {
    return score_labels(sequence,
                        {logits.row(entry.first_logit), static_cast<size_t>(logits.cols)});
  }
  // The same draws as without drafts: a guess is right when it is what is drawn anyway. So the
  // output is that of the plain run, and a guess is accepted with the probability that the target
  // distribution gives it.
  const int32_t first = entry.first_logit + entry.num_logits - 1 - entry.num_drafts;
  const DraftTree drafts = std::exchange(sequence.drafts, {});
  int32_t node = DraftTree::kRoot;
  for (;;) {
    const float* row = logits.row(first + 1 + node);
    if (!sample(sequence, {row, static_cast<size_t>(logits.cols)})) break;  // it has ended
    const auto child = drafts.find_child(node, sequence.tokens.back());
    if (!child) {
      if (entry.num_drafts > 0) {
        // Where nothing was guessed behind the last right guess, none was wrong.
        const int32_t right = drafts.depth(node);
        sequence.draft_length.observe(drafts.has_children(node) ? drafts.depth() : right, right);
      }
      scheduler_.release_branches(sequence);
      break;
    }
    node = *child;
    accept_draft(entry, drafts, node);
  }
  counters_.draft_tokens_total += entry.num_drafts;
  counters_.accepted_draft_tokens_total += drafts.depth(node);
}

void ThreadedEngine::accept_draft(const ScheduledSequence& entry, const DraftTree& drafts,
                                  int32_t node) {
  Sequence& sequence = *entry.sequence;
  const bool changes_pages = drafts.begins_branch(node);
  const auto first_page = static_cast<size_t>(sequence.branch_pages.first);
  const PageId before = changes_pages ? sequence.pages[first_page] : PageId{};
  scheduler_.accept_draft(sequence, drafts, node);
  if (changes_pages) drafter_->move_page(before, sequence.pages[first_page]);
  const float* state = nullptr;
  if (drafter_->wants_states()) {
    state = model_->next_token_states().row(entry.first_state + entry.num_states -
                                            entry.num_drafts + node);
  }
  drafter_->accept(sequence, state);
}

void ThreadedEngine::pool(const ScheduledSequence& entry) {
  Sequence& sequence = *entry.sequence;
  const Matrix<const float> states = model_->hidden_states();
  for (int32_t i = 0; i < entry.num_states; ++i) {
    sequence.pooled.add({states.row(entry.first_state + i), static_cast<size_t>(states.cols)});
  }
  if (!entry.samples) return;
  count_prompt(sequence);
  EngineOutput output = output_of(sequence);
  output.embedding = sequence.pooled.mean();
  const bool finite =
      std::ranges::all_of(output.embedding, [](float value) { return std::isfinite(value); });
  output.finish_reason = finite ? FinishReason::stop : FinishReason::error;
  if (!finite) output.error = not_numbers("hidden states");
  end(scheduler_.finish(sequence), std::move(output));
}

void ThreadedEngine::score_labels(Sequence& sequence, std::span<const float> logits) {
  count_prompt(sequence);
  EngineOutput output = output_of(sequence);
  output.finish_reason = FinishReason::stop;
  for (const TokenId label : sequence.request.label_token_ids) {
    output.label_logprobs.push_back(sampler_.score(logits, label, 0).logprob);
  }
  if (std::ranges::any_of(output.label_logprobs, [](float value) { return std::isnan(value); })) {
    output.finish_reason = FinishReason::error;
    output.error = not_numbers("logits");
  }
  end(scheduler_.finish(sequence), std::move(output));
}

void ThreadedEngine::score_prompt(const ScheduledSequence& entry, Matrix<const float> logits) {
  Sequence& sequence = *entry.sequence;
  const int32_t begin = sequence.num_computed - entry.num_tokens;
  if (begin == 0) sequence.prompt_logprobs.assign(1, {sequence.tokens[0], true, 0.0f, {}});
  for (int32_t i = 0; i < entry.num_logits; ++i) {
    const int32_t next = begin + i + 1;
    if (next >= sequence.num_prompt()) break;
    const std::span<const float> row(logits.row(entry.first_logit + i),
                                     static_cast<size_t>(logits.cols));
    sequence.prompt_logprobs.push_back(sampler_.score(
        row, sequence.tokens[static_cast<size_t>(next)], sequence.request.num_top_logprobs));
  }
}

bool ThreadedEngine::is_stop_token(const Request& request, TokenId token) const {
  const auto& stops = request.sampling.stop_token_ids;
  if (std::ranges::find(stops, token) != stops.end()) return true;
  return !request.sampling.ignore_eos &&
         std::ranges::find(config_.eos_token_ids, token) != config_.eos_token_ids.end();
}

// Tokens that would end the sequence before min_new_tokens.
std::span<const TokenId> ThreadedEngine::forbidden_tokens(const Sequence& sequence) {
  forbidden_.clear();
  if (sequence.num_output() >= sequence.request.sampling.min_new_tokens) return forbidden_;
  const auto add = [this](const std::vector<TokenId>& ids) {
    for (TokenId id : ids) {
      if (id >= 0 && id < limits_.vocab_size) forbidden_.push_back(id);
    }
  };
  add(config_.eos_token_ids);
  add(sequence.request.sampling.stop_token_ids);
  return forbidden_;
}

bool ThreadedEngine::sample(Sequence& sequence, std::span<const float> logits) {
  const SamplingParams& params = sequence.request.sampling;
  if (sequence.num_output() == 0) count_prompt(sequence);
  EngineOutput output = output_of(sequence);
  if (params.max_new_tokens == 0) {
    output.finish_reason = FinishReason::length;
    end(scheduler_.finish(sequence), std::move(output));
    return false;
  }
  auto event = sampler_.sample(logits, sequence.request, sequence.sampler, sequence.num_output(),
                               forbidden_tokens(sequence));
  if (!event) {
    output.finish_reason = FinishReason::error;
    output.error = event.error();
    end(scheduler_.finish(sequence), std::move(output));
    return false;
  }
  const TokenId token = event->token;
  sequence.tokens.push_back(token);
  ++counters_.generation_tokens_total;
  output.tokens.push_back(std::move(*event));
  output.num_output_tokens = sequence.num_output();
  if (is_stop_token(sequence.request, token)) {
    output.finish_reason = FinishReason::stop;
    output.matched_stop_token = token;
  } else if (sequence.request.constraint && sequence.request.constraint->complete()) {
    output.finish_reason = FinishReason::stop;
  } else if (sequence.num_output() >= params.max_new_tokens ||
             sequence.num_tokens() >= max_sequence_tokens_) {
    output.finish_reason = FinishReason::length;
  }
  if (output.finish_reason != FinishReason::none) {
    end(scheduler_.finish(sequence), std::move(output));
    return false;
  }
  sequence.request.sink(std::move(output));
  return true;
}

void ThreadedEngine::count_prompt(const Sequence& sequence) {
  counters_.prompt_tokens_total += sequence.num_prompt();
  counters_.cached_tokens_total += sequence.num_cached;
}

EngineOutput ThreadedEngine::output_of(Sequence& sequence) const {
  EngineOutput output;
  output.request_id = sequence.request.id;
  output.num_prompt_tokens = sequence.num_prompt();
  output.num_cached_tokens = sequence.num_cached;
  output.num_output_tokens = sequence.num_output();
  if (sequence.num_output() == 0) output.prompt_logprobs = std::move(sequence.prompt_logprobs);
  return output;
}

void ThreadedEngine::end(std::unique_ptr<Sequence> sequence, EngineOutput output) {
  ++(output.finish_reason == FinishReason::abort ? counters_.num_requests_aborted
                                                 : counters_.num_requests_finished);
  // Before the sink: whoever hears of the end may submit the next one at once.
  unfinished_.fetch_sub(1);
  if (drafter_) drafter_->finish(*sequence);
  sequence->request.sink(std::move(output));
}

void ThreadedEngine::end_with(std::unique_ptr<Sequence> sequence, FinishReason reason) {
  EngineOutput output = output_of(*sequence);
  output.finish_reason = reason;
  end(std::move(sequence), std::move(output));
}

void ThreadedEngine::end_with_error(std::unique_ptr<Sequence> sequence, const Error& problem) {
  EngineOutput output = output_of(*sequence);
  output.finish_reason = FinishReason::error;
  output.error = problem;
  end(std::move(sequence), std::move(output));
}

void ThreadedEngine::publish(bool idle) {
  counters_.num_running = scheduler_.num_running();
  counters_.num_preemptions = scheduler_.num_preemptions();
  counters_.kv_tokens_capacity = scheduler_.capacity_tokens();
  counters_.kv_tokens_used = scheduler_.used_tokens();
  // Walks the whole tree: not at every step.
  if (idle || counters_.num_steps % 64 == 0) {
    counters_.kv_tokens_evictable = scheduler_.evictable_tokens();
  }
  counters_.expert_imbalance = expert_balancer_.imbalance();
  counters_.expert_moves_total = expert_balancer_.num_moves();
  std::lock_guard lock(stats_mutex_);
  stats_ = counters_;
  idle_ = idle;
  last_progress_ = Clock::now();
}

Status check_config(const EngineConfig& config) {
  const auto positive = [](const char* flag, int64_t value) -> Status {
    if (value >= 1) return {};
    return error(ErrorCode::invalid_argument, "{} is {}; it must be at least 1", flag, value);
  };
  for (const Status& status :
       {positive("--page-size", config.page_size),
        positive("--chunked-prefill-size", config.chunked_prefill_size),
        positive("--max-running-requests", config.max_running_requests),
        positive("--eplb-rebalance-num-iterations", config.eplb_rebalance_num_iterations)}) {
    if (!status) return status;
  }
  if (config.speculative_num_steps < 0 ||
      config.speculative_num_steps > config.speculative_num_draft_tokens) {
    return error(ErrorCode::invalid_argument,
                 "--speculative-num-steps is {}; it must be in [0, {}], which "
                 "--speculative-num-draft-tokens allows (0: as many as pay)",
                 config.speculative_num_steps, config.speculative_num_draft_tokens);
  }
  if (config.speculative_num_draft_tokens < 1 || config.speculative_num_draft_tokens > 64) {
    return error(ErrorCode::invalid_argument,
                 "--speculative-num-draft-tokens is {}; it must be in [1, 64]",
                 config.speculative_num_draft_tokens);
  }
  if (config.speculative_eagle_topk < 1 ||
      config.speculative_eagle_topk > config.speculative_num_draft_tokens) {
    return error(ErrorCode::invalid_argument,
                 "--speculative-eagle-topk is {}; it must be in [1, {}], which "
                 "--speculative-num-draft-tokens allows",
                 config.speculative_eagle_topk, config.speculative_num_draft_tokens);
  }
  if (config.speculative_eagle_topk > 1 && config.speculative_num_draft_tokens > kMaxDraftsOfAll) {
    return error(
        ErrorCode::invalid_argument,
        "--speculative-num-draft-tokens is {}; with --speculative-eagle-topk {} it must be "
        "in [{}, {}]: a step verifies trees of no more",
        config.speculative_num_draft_tokens, config.speculative_eagle_topk,
        config.speculative_eagle_topk, kMaxDraftsOfAll);
  }
  if (!(config.mem_fraction_static > 0 && config.mem_fraction_static < 1)) {
    return error(ErrorCode::invalid_argument,
                 "--mem-fraction-static is {}; it must be between 0 and 1",
                 config.mem_fraction_static);
  }
  return {};
}

// A model that is ready to compute.
struct PreparedModel {
  CpuFeatures features;
  std::unique_ptr<Drafter> drafter;
  int64_t context_length = 0;
  int32_t num_pages = 0;
};

// On all hosts alike: their configurations are the same.
Expected<PreparedModel> prepare(Model& model, EngineConfig& config,
                                std::unique_ptr<Model> draft_model) {
  if (Status status = check_config(config); !status) return forward_error(status);
  auto features = usable_cpu_features();
  if (!features) return forward_error(features);
  const ModelLimits& limits = model.limits();
  auto drafter = make_drafter(config, model, std::move(draft_model), *features);
  if (!drafter) return forward_error(drafter);
  int64_t context_length = limits.max_position_embeddings;
  if (config.context_length > context_length) {
    return error(ErrorCode::invalid_argument,
                 "--context-length {} is beyond the model's {} positions", config.context_length,
                 context_length);
  }
  if (config.context_length > 0) context_length = config.context_length;
  const int32_t max_seqs = config.max_running_requests;
  int64_t kv_bytes_per_token = limits.kv_bytes_per_token;
  if (*drafter) kv_bytes_per_token += (*drafter)->kv_bytes_per_token();
  if (limits.state_bytes_per_sequence > 0 && !config.disable_radix_cache) {
    log::info("The model has recurrent states, which can't be cut: prompts share no prefixes");
    config.disable_radix_cache = true;
  }
  const auto num_pages = model.agree_on_pages(
      kv_pages(config, {detect_memory_limits(), resident_memory(), kv_bytes_per_token,
                        max_seqs * limits.state_bytes_per_sequence, context_length}));
  if (!num_pages) return tl::unexpected(num_pages.error());
  Status status =
      model.prepare(*num_pages, config.page_size,
                    config.chunked_prefill_size + max_seqs + (*drafter ? kMaxDraftsOfAll : 0),
                    max_seqs + (config.speculative_eagle_topk > 1 ? kMaxDraftsOfAll : 0));
  if (status && *drafter) {
    status =
        (*drafter)->prepare(*num_pages, config.page_size, config.chunked_prefill_size, max_seqs);
  }
  if (!status) return forward_error(status);
  return PreparedModel{*features, std::move(*drafter), context_length, *num_pages};
}

}  // namespace

Expected<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<Model> model, EngineConfig config,
                                                 std::unique_ptr<Model> draft_model) {
  auto prepared = prepare(*model, config, std::move(draft_model));
  if (!prepared) return forward_error(prepared);
  const Drafter* drafter = prepared->drafter.get();
  const SchedulerConfig scheduler_config{prepared->num_pages,
                                         config.page_size,
                                         config.chunked_prefill_size,
                                         config.max_running_requests,
                                         !config.disable_radix_cache,
                                         drafter ? config.speculative_num_draft_tokens : 0,
                                         drafter && drafter->kv_bytes_per_token() > 0,
                                         drafter && drafter->wants_states()};
  return std::make_unique<ThreadedEngine>(std::move(model), std::move(prepared->drafter), config,
                                          scheduler_config, prepared->context_length,
                                          prepared->features);
}

Status Engine::follow(std::unique_ptr<Model> model, EngineConfig config) {
  if (auto prepared = prepare(*model, config, nullptr); !prepared) return forward_error(prepared);
  model->adopt_caller();
  return model->follow();
}

}  // namespace tw
