// Which of the workers gets a request.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "router/worker.h"

namespace tw {

struct PolicyConfig {
  std::string name = "cache_aware";
  // Of cache_aware: the share of a prompt that a worker must have seen for the request to go there.
  double cache_threshold = 0.3;
  // The load counts more than the cache where the most and the least loaded worker differ by more
  // requests than this, and by more than this factor.
  int balance_abs_threshold = 8;
  double balance_rel_threshold = 1.5;
  size_t max_tree_size = size_t{1} << 26;  // bytes of prompts remembered per worker
};

// From any thread.
class Policy {
 public:
  // cache_aware, power_of_two, round_robin or random; another name is invalid_argument.
  static Expected<std::unique_ptr<Policy>> create(const PolicyConfig& config);
  // The names, for --help and errors.
  static std::vector<std::string> names();

  virtual ~Policy() = default;

  using Candidates = std::span<const std::shared_ptr<Worker>>;
  // The index of the worker that gets the request. There is at least one. `text`: the prompt as the
  // client sent it, empty where a request has none.
  virtual size_t choose(Candidates workers, std::string_view text) = 0;

  // The worker lost its cache (it is gone, or comes back from a restart).
  virtual void forget(const std::string& /*url*/) {}
};

}  // namespace tw
