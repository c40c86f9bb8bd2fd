// Prometheus metrics of the router, all named tilewright_router_*.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "router/worker.h"

namespace tw {

class RouterMetrics {
 public:
  RouterMetrics();
  ~RouterMetrics();
  RouterMetrics(const RouterMetrics&) = delete;
  RouterMetrics& operator=(const RouterMetrics&) = delete;

  void count_http_request(std::string_view endpoint, int status);
  void set_connections(int count);
  // An answer of a worker; 0: it gave none.
  void count_worker_answer(const std::string& url, int status);
  void count_retry();

  // The text format, with the workers as of now.
  std::string render(std::span<const std::shared_ptr<Worker>> workers);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tw
