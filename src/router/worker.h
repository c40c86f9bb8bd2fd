// A server that the router sends requests to, and what is known of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/status.h"

namespace tw {

struct WorkerAddress {
  std::string url;   // "http://node1:30000", without a path
  std::string host;  // without the brackets of IPv6
  uint16_t port = 80;

  // Of "http://HOST[:PORT][/]" or "HOST:PORT". Anything else is invalid_argument.
  static Expected<WorkerAddress> parse(const std::string& text);
};

// How many checks in a row change a worker's health.
struct HealthThresholds {
  int failures = 3;
  int successes = 2;
};

// Shared by the requests that it answers; from any thread.
class Worker {
 public:
  Worker(WorkerAddress address, HealthThresholds thresholds)
      : address_(std::move(address)), thresholds_(thresholds) {}

  const WorkerAddress& address() const { return address_; }
  const std::string& url() const { return address_.url; }

  // Whether requests go there: not before a check said so.
  bool is_healthy() const { return healthy_; }
  // The answer to a health check. The first good one is enough for a worker that is new.
  void count_check(bool succeeded);
  // A request could not even be given to it: out of use until checks succeed.
  void count_refusal();

  int num_running() const { return running_; }  // requests from this router

  // One request more, for as long as it lives.
  class Lease {
   public:
    explicit Lease(std::shared_ptr<Worker> worker) : worker_(std::move(worker)) {
      ++worker_->running_;
    }
    Lease(Lease&&) = default;
    ~Lease() {
      if (worker_) --worker_->running_;
    }

   private:
    std::shared_ptr<Worker> worker_;
  };

 private:
  void set_healthy(bool healthy);

  const WorkerAddress address_;
  const HealthThresholds thresholds_;
  std::atomic<bool> healthy_{false};
  std::atomic<int> running_{0};
  std::mutex mutex_;
  bool checked_ = false;
  bool was_healthy_ = false;
  int streak_ = 0;  // checks in a row that speak against the present state
};

// All workers, in the order in which they came.
class WorkerPool {
 public:
  explicit WorkerPool(HealthThresholds thresholds) : thresholds_(thresholds) {}

  // Fails where it is there already.
  Status add(const WorkerAddress& address);
  // Requests under way there go on. Fails where there is none of that address.
  Status remove(const WorkerAddress& address);

  std::vector<std::shared_ptr<Worker>> all() const;
  std::vector<std::shared_ptr<Worker>> healthy() const;

 private:
  const HealthThresholds thresholds_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Worker>> workers_;
};

}  // namespace tw
