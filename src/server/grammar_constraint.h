// Grammars as the engine takes them: token masks computed beside the model's forward pass.
//
// When a token is accepted, the next mask goes to a worker; the engine asks for it a forward pass
// later. If no worker has begun by then, the engine thread computes it itself: it never waits for
// work that nobody does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/token_constraint.h"
#include "text/grammar.h"

namespace tw {

// From where on a grammar holds.
struct GrammarStart {
  // After these tokens, such as the end of reasoning; empty: from the beginning.
  std::vector<int32_t> after = {};
  // With `after`: only if the first token is this one, else from the beginning. -1: in any case.
  int32_t only_if_first = -1;
};

// What masks cost since the start.
struct MaskCosts {
  int64_t num_masks = 0;
  double compute_seconds = 0;  // of any thread
  double wait_seconds = 0;     // of the engine's: what was not hidden behind the model
};

class MaskWorkers;

class GrammarConstraint final : public TokenConstraint {
 public:
  // `workers` outlive the constraint's use.
  GrammarConstraint(Grammar grammar, GrammarStart start, int64_t vocab_size, MaskWorkers& workers);
  ~GrammarConstraint() override;

  Expected<std::span<const uint32_t>> allowed() override;
  Status accept(int32_t token) override;
  bool complete() const override { return complete_; }

 private:
  friend class MaskWorkers;
  class Mask;
  enum class Phase {
    first_token,  // the grammar's, or the one that defers it
    deferred,
    active,
  };
  Status advance(int32_t token);
  Status request_mask();

  const GrammarStart start_;
  MaskWorkers& workers_;
  const std::shared_ptr<Mask> mask_;
  Phase phase_;
  bool complete_ = false;
  std::vector<int32_t> last_tokens_;  // while deferred, as many as start_.after has
};

// The threads that compute masks. They outlive the engine's requests.
class MaskWorkers {
 public:
  explicit MaskWorkers(int num_threads);
  ~MaskWorkers();
  MaskWorkers(const MaskWorkers&) = delete;
  MaskWorkers& operator=(const MaskWorkers&) = delete;

  MaskCosts costs() const;

 private:
  friend class GrammarConstraint;
  struct Counters {
    std::atomic<int64_t> num_masks{0}, compute_ns{0}, wait_ns{0};
  };
  void post(std::shared_ptr<GrammarConstraint::Mask> mask);
  void run();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<GrammarConstraint::Mask>> queue_;
  bool closed_ = false;
  Counters counters_;
  std::vector<std::thread> threads_;
};

}  // namespace tw
