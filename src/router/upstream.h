// One request to a worker, and its answer as it comes.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "http/http_message.h"
#include "router/worker.h"

namespace tw {

namespace asio = boost::asio;

struct UpstreamTimeouts {
  std::chrono::milliseconds connect{5'000};
  std::chrono::milliseconds silence{1'800'000};  // without anything from the worker
};

// Used on its executor alone, which runs one thing at a time.
class Upstream {
 public:
  static std::shared_ptr<Upstream> create(asio::any_io_executor executor,
                                          const WorkerAddress& worker, UpstreamTimeouts timeouts);
  virtual ~Upstream() = default;

  // Connects, sends the request and waits for the head of the answer, whose body is empty yet.
  // Fails with not_found where the worker cannot be reached: it has not seen the request. With
  // unavailable where it left it unanswered.
  virtual asio::awaitable<Expected<HttpResponse>> open(const HttpRequest& request) = 0;

  // The next piece of the body; empty at its end. Fails with unavailable where it breaks off.
  virtual asio::awaitable<Expected<std::string>> read() = 0;

  // Ends what is under way, which then fails with cancelled. The worker sees its client go.
  virtual void cancel() = 0;

  virtual asio::any_io_executor executor() = 0;
};

}  // namespace tw
