#include "router/router_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <set>

namespace tw {

struct RouterMetrics::Families {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& http_requests =
      prometheus::BuildCounter()
          .Name("tilewright_router_http_requests_total")
          .Help("Answered HTTP requests by endpoint and status")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& worker_answers =
      prometheus::BuildCounter()
          .Name("tilewright_router_worker_answers_total")
          .Help("Requests given to workers by worker and status; status 0: no answer came")
          .Register(registry);
  prometheus::Counter& retries = prometheus::BuildCounter()
                                     .Name("tilewright_router_retries_total")
                                     .Help("Requests that were given to another worker")
                                     .Register(registry)
                                     .Add({});
  prometheus::Gauge& connections = prometheus::BuildGauge()
                                       .Name("tilewright_router_http_connections")
                                       .Help("Open HTTP connections")
                                       .Register(registry)
                                       .Add({});
  // Of workers that may be gone by the next time: made anew for each answer.
  static prometheus::Family<prometheus::Gauge>& of_workers(prometheus::Registry& current,
                                                           const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(current);
  }
};

RouterMetrics::RouterMetrics() : families_(std::make_unique<Families>()) {}
RouterMetrics::~RouterMetrics() = default;

void RouterMetrics::count_http_request(std::string_view endpoint, int status) {
  families_->http_requests
      .Add({{"endpoint", std::string(endpoint)}, {"status", std::to_string(status)}})
      .Increment();
}

void RouterMetrics::set_connections(int count) {
  families_->connections.Set(count);
}

void RouterMetrics::count_worker_answer(const std::string& url, int status) {
  families_->worker_answers.Add({{"worker", url}, {"status", std::to_string(status)}}).Increment();
}

void RouterMetrics::count_retry() {
  families_->retries.Increment();
}

std::string RouterMetrics::render(std::span<const std::shared_ptr<Worker>> workers) {
  prometheus::Registry current;
  auto& healthy = Families::of_workers(current, "tilewright_router_worker_healthy",
                                       "1 where the worker takes requests, 0 where it does not");
  auto& running = Families::of_workers(current, "tilewright_router_worker_running_requests",
                                       "Requests of this router that the worker answers now");
  for (const auto& worker : workers) {
    healthy.Add({{"worker", worker->url()}}).Set(worker->is_healthy() ? 1 : 0);
    running.Add({{"worker", worker->url()}}).Set(worker->num_running());
  }
  const prometheus::TextSerializer serializer;
  return serializer.Serialize(families_->registry.Collect()) +
         serializer.Serialize(current.Collect());
}

}  // namespace tw
