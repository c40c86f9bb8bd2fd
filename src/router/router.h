// One address in front of several servers of the same model.
//
// A request goes to the worker that the policy chooses among the healthy ones. As long as nothing
// of the answer has gone to the client, a worker that cannot be reached, breaks off, or is too busy
// (429, 503) costs nothing but time: the request goes to another. Requests that concern a server
// and not a prompt (flushing caches, adapters, profiles) go to all. What the router answers itself:
//
//   GET  /health, /metrics, /list_workers
//   POST /add_worker?url=URL, /remove_worker?url=URL
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "http/api_error.h"
#include "http/application.h"
#include "http/identifiers.h"
#include "router/policy.h"
#include "router/router_metrics.h"
#include "router/upstream.h"
#include "router/worker.h"

namespace tw {

struct RouterConfig : HttpConfig {
  std::vector<WorkerAddress> workers;
  PolicyConfig policy;
  UpstreamTimeouts timeouts;
  int max_retries = 3;  // other workers that a request is given to
  std::chrono::milliseconds health_check_interval{5'000};
  std::chrono::milliseconds health_check_timeout{5'000};
  HealthThresholds health;
};

class Router final : public Application {
 public:
  // Checks the workers once, and begins to check them from time to time. Fails for a policy that is
  // none, and for a worker that is named twice.
  static Expected<std::unique_ptr<Router>> create(RouterConfig config);
  ~Router() override;

  // Application
  const HttpConfig& http_config() const override { return config_; }
  asio::awaitable<Answered> answer(HttpRequest& request, Responder& responder) override;
  void count_request(std::string_view endpoint, int status) override {
    metrics_.count_http_request(endpoint, status);
  }
  void set_connections(int count) override { metrics_.set_connections(count); }
  void abort_all() override;
  void shutdown() override;

  WorkerPool& workers() { return workers_; }

 private:
  Router(RouterConfig config, std::unique_ptr<Policy> policy);

  // What the router answers itself; none: a worker answers.
  std::optional<HttpResponse> own_answer(const HttpRequest& request);
  HttpResponse change_workers(const HttpRequest& request);
  HttpResponse health() const;
  HttpResponse list_workers() const;

  asio::awaitable<void> forward(const HttpRequest& request, Responder& responder);
  asio::awaitable<void> send_to_all(const HttpRequest& request, Responder& responder);

  // A worker's answer, or why there is none. A stream's body is still to come.
  struct Attempt {
    std::shared_ptr<Upstream> upstream;
    Expected<HttpResponse> response;
    bool is_stream = false;
  };
  asio::awaitable<Attempt> attempt(const HttpRequest& request, Worker& worker,
                                   Responder& responder);
  asio::awaitable<void> pass_stream(Attempt attempt, const Worker& worker, Responder& responder);
  std::shared_ptr<Worker> choose(const std::string& text,
                                 const std::vector<std::shared_ptr<Worker>>& tried);

  asio::awaitable<void> check_for_ever();
  asio::awaitable<void> check(std::shared_ptr<Worker> worker);

  // Upstreams under way, so that they can be cancelled.
  std::shared_ptr<Upstream> open_upstream(asio::any_io_executor executor,
                                          const WorkerAddress& worker,
                                          const UpstreamTimeouts& timeouts);
  void forget_upstream(const std::shared_ptr<Upstream>& upstream);

  const RouterConfig config_;
  const std::unique_ptr<Policy> policy_;
  WorkerPool workers_;
  RouterMetrics metrics_;
  Identifiers identifiers_;
  std::mutex upstreams_mutex_;
  std::set<std::shared_ptr<Upstream>> upstreams_;

  // The health checks have a thread of their own.
  asio::io_context checks_{1};
  asio::steady_timer next_check_{checks_};
  std::thread checker_;
};

}  // namespace tw
