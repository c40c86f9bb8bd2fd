#include "router/policy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "router/prefix_index.h"

namespace tw {
namespace {

size_t random_index(size_t count) {
  thread_local std::mt19937_64 random(std::random_device{}());
  return std::uniform_int_distribution<size_t>(0, count - 1)(random);
}

size_t least_loaded(Policy::Candidates workers) {
  const auto least = std::ranges::min_element(
      workers, {}, [](const auto& worker) { return worker->num_running(); });
  return static_cast<size_t>(least - workers.begin());
}

class RoundRobin final : public Policy {
 public:
  size_t choose(Candidates workers, std::string_view) override { return next_++ % workers.size(); }

 private:
  std::atomic<size_t> next_{0};
};

class Random final : public Policy {
 public:
  size_t choose(Candidates workers, std::string_view) override {
    return random_index(workers.size());
  }
};

// The less loaded of two at random: nearly as even as the least loaded of all, and several routers
// side by side do not all run to the same worker.
class PowerOfTwo final : public Policy {
 public:
  size_t choose(Candidates workers, std::string_view) override {
    const size_t first = random_index(workers.size());
    if (workers.size() == 1) return first;
    const size_t second = (first + 1 + random_index(workers.size() - 1)) % workers.size();
    return workers[second]->num_running() < workers[first]->num_running() ? second : first;
  }
};

// Where the prompt's beginning is in the cache, unless the load is too uneven for it.
class CacheAware final : public Policy {
 public:
  explicit CacheAware(const PolicyConfig& config) : config_(config) {}

  size_t choose(Candidates workers, std::string_view text) override {
    if (text.empty()) return least_loaded(workers);
    std::lock_guard lock(mutex_);
    const size_t chosen = choose_locked(workers, text);
    index_of(*workers[chosen]).insert(text);
    return chosen;
  }

  void forget(const std::string& url) override {
    std::lock_guard lock(mutex_);
    seen_.erase(url);
  }

 private:
  PrefixIndex& index_of(const Worker& worker) {
    return seen_.try_emplace(worker.url(), config_.max_tree_size).first->second;
  }

  size_t choose_locked(Candidates workers, std::string_view text) {
    const auto [low, high] =
        std::ranges::minmax(workers, {}, [](const auto& worker) { return worker->num_running(); });
    const int least = low->num_running(), most = high->num_running();
    if (most - least > config_.balance_abs_threshold &&
        most > config_.balance_rel_threshold * least) {
      return least_loaded(workers);
    }
    size_t best = 0, longest = 0;
    for (size_t i = 0; i < workers.size(); ++i) {
      const size_t matched = index_of(*workers[i]).match(text);
      const bool is_less_loaded = workers[i]->num_running() < workers[best]->num_running();
      if (i > 0 && (matched < longest || (matched == longest && !is_less_loaded))) continue;
      best = i;
      longest = matched;
    }
    const auto share = static_cast<double>(longest) / static_cast<double>(text.size());
    return longest > 0 && share >= config_.cache_threshold ? best : emptiest(workers);
  }

  // The least loaded, and of those the one whose cache was asked to hold least.
  size_t emptiest(Candidates workers) {
    const auto cost = [this](const std::shared_ptr<Worker>& worker) {
      return std::pair(worker->num_running(), index_of(*worker).size_bytes());
    };
    return static_cast<size_t>(std::ranges::min_element(workers, {}, cost) - workers.begin());
  }

  const PolicyConfig config_;
  std::mutex mutex_;
  std::map<std::string, PrefixIndex> seen_;  // by worker's URL
};

struct Named {
  const char* name;
  std::unique_ptr<Policy> (*make)(const PolicyConfig&);
};

template <typename T>
std::unique_ptr<Policy> make(const PolicyConfig& config) {
  if constexpr (std::is_constructible_v<T, const PolicyConfig&>) {
    return std::make_unique<T>(config);
  } else {
    return std::make_unique<T>();
  }
}

constexpr Named kPolicies[] = {{"cache_aware", make<CacheAware>},
                               {"power_of_two", make<PowerOfTwo>},
                               {"round_robin", make<RoundRobin>},
                               {"random", make<Random>}};

}  // namespace

std::vector<std::string> Policy::names() {
  std::vector<std::string> names;
  for (const Named& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

Expected<std::unique_ptr<Policy>> Policy::create(const PolicyConfig& config) {
  for (const Named& policy : kPolicies) {
    if (policy.name == config.name) return policy.make(config);
  }
  return error(ErrorCode::invalid_argument, "--policy {}: unknown; use one of {}", config.name,
               fmt::join(names(), ", "));
}

}  // namespace tw
