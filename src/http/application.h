// What an HTTP server serves: who answers the requests that its connections read.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/http_message.h"
#include "http/responder.h"

namespace tw {

struct HttpConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 30000;  // 0: one that is free
  std::string api_key;    // empty: none needed
  int io_threads = 1;
  int max_connections = 4096;
  int64_t max_request_bytes = int64_t{64} << 20;
  // Bodies being received or waiting to be parsed, of all connections together.
  int64_t max_buffered_bytes = int64_t{512} << 20;
  std::chrono::milliseconds header_timeout{15'000};  // for all of a request's headers
  std::chrono::milliseconds body_timeout{30'000};    // plus a second per 128 KiB
  std::chrono::milliseconds idle_timeout{75'000};    // of a connection between requests
  std::chrono::milliseconds send_timeout{30'000};    // a client that takes nothing for so long
  std::chrono::milliseconds drain_timeout{30'000};
};

class Application {
 public:
  virtual ~Application() = default;

  virtual const HttpConfig& http_config() const = 0;

  // What the access log and the counters say of an answer.
  struct Answered {
    std::string_view endpoint;  // never what the client sent: label values stay few
    bool is_quiet = false;      // asked every few seconds: in the log at debug level
  };
  // Answers one request through `responder`, whatever it is.
  virtual asio::awaitable<Answered> answer(HttpRequest& request, Responder& responder) = 0;

  // From any I/O thread. A status of 499: the client closed before the answer was complete.
  virtual void count_request(std::string_view endpoint, int status) = 0;
  virtual void set_connections(int count) = 0;

  // Requests under way have no more time: they end with an error.
  virtual void abort_all() = 0;
  // The last connection is closed.
  virtual void shutdown() = 0;

  // From now on new requests are answered 503.
  void begin_drain() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  std::atomic<bool> draining_{false};
};

}  // namespace tw
