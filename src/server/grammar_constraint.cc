#include "server/grammar_constraint.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace tw {
namespace {

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

// A grammar and its mask, which one thread at a time computes.
class GrammarConstraint::Mask {
 public:
  Mask(Grammar grammar, int64_t vocab_size, MaskWorkers::Counters& counters)
      : grammar_(std::move(grammar)),
        words_(static_cast<size_t>((vocab_size + 31) / 32)),
        counters_(counters) {}

  // Of the engine thread, while no computation is under way.
  Grammar& grammar() { return grammar_; }

  void request() { state_.store(State::requested, std::memory_order_release); }

  // Computes the mask unless another thread does or did.
  void compute() {
    State expected = State::requested;
    if (!state_.compare_exchange_strong(expected, State::running, std::memory_order_acq_rel)) {
      return;
    }
    const int64_t begin = now_ns();
    status_ = grammar_.mask(words_);
    counters_.compute_ns += now_ns() - begin;
    ++counters_.num_masks;
    state_.store(State::done, std::memory_order_release);
    state_.notify_all();
  }

  // The mask that was requested, computed here if nobody has begun.
  Expected<std::span<uint32_t>> get() {
    if (state_.load(std::memory_order_acquire) != State::done) {
      const int64_t begin = now_ns();
      compute();
      state_.wait(State::running, std::memory_order_acquire);
      counters_.wait_ns += now_ns() - begin;
    }
    if (!status_) return tl::unexpected(status_.error());
    return std::span(words_);
  }

 private:
  enum class State { requested, running, done };
  Grammar grammar_;
  std::vector<uint32_t> words_;
  MaskWorkers::Counters& counters_;
  Status status_;
  std::atomic<State> state_{State::requested};
};

GrammarConstraint::GrammarConstraint(Grammar grammar, GrammarStart start, int64_t vocab_size,
                                     MaskWorkers& workers)
    : start_(std::move(start)),
      workers_(workers),
      mask_(std::make_shared<Mask>(std::move(grammar), vocab_size, workers.counters_)),
      phase_(start_.after.empty()        ? Phase::active
             : start_.only_if_first >= 0 ? Phase::first_token
                                         : Phase::deferred) {
  // The first mask is computed while the prompt is.
  workers_.post(mask_);
}

GrammarConstraint::~GrammarConstraint() = default;

Expected<std::span<const uint32_t>> GrammarConstraint::allowed() {
  if (phase_ == Phase::deferred) return std::span<const uint32_t>();
  auto words = mask_->get();
  if (!words) return forward_error(words);
  if (phase_ == Phase::first_token) {
    const auto id = static_cast<size_t>(start_.only_if_first);
    if (id / 32 < words->size()) (*words)[id / 32] |= 1u << (id % 32);
  }
  return *words;
}

Status GrammarConstraint::accept(int32_t token) {
  switch (phase_) {
    case Phase::first_token:
      if (token == start_.only_if_first) {
        phase_ = Phase::deferred;
        // The mask carries this token's bit: compute it anew.
        return request_mask();
      }
      phase_ = Phase::active;
      return advance(token);
    case Phase::deferred:
      last_tokens_.push_back(token);
      if (last_tokens_.size() > start_.after.size()) last_tokens_.erase(last_tokens_.begin());
      if (last_tokens_ != start_.after) return {};
      phase_ = Phase::active;
      return {};
    case Phase::active:
      return advance(token);
  }
  return {};
}

Status GrammarConstraint::advance(int32_t token) {
  // The mask may not have been asked for; the grammar must be at rest.
  if (auto words = mask_->get(); !words) return forward_error(words);
  if (Status status = mask_->grammar().accept(token); !status) return status;
  complete_ = mask_->grammar().complete();
  return complete_ ? Status() : request_mask();
}

Status GrammarConstraint::request_mask() {
  if (auto words = mask_->get(); !words) return forward_error(words);
  mask_->request();
  workers_.post(mask_);
  return {};
}

MaskWorkers::MaskWorkers(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

MaskWorkers::~MaskWorkers() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

MaskCosts MaskWorkers::costs() const {
  return {counters_.num_masks, static_cast<double>(counters_.compute_ns) * 1e-9,
          static_cast<double>(counters_.wait_ns) * 1e-9};
}

void MaskWorkers::post(std::shared_ptr<GrammarConstraint::Mask> mask) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(mask));
  }
  arrived_.notify_one();
}

void MaskWorkers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [this] { return closed_ || !queue_.empty(); });
    if (closed_) return;
    const auto mask = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    mask->compute();
    lock.lock();
  }
}

}  // namespace tw
