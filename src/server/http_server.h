// The HTTP server: accepts connections and runs one coroutine for each (http_connection.h).
//
// Life: create() binds the port; run() serves until stop() (or a signal) begins the drain. While
// draining, requests under way finish, /health and all new requests are answered 503, and after
// drain_timeout (or a second stop) what still runs is aborted. run() returns when the last
// connection is closed; the engine is then shut down.
#pragma once

#include <cstdint>
#include <memory>

#include "core/status.h"
#include "server/service.h"

namespace tw {

class HttpServer {
 public:
  // Binds and listens. A port in use is invalid_argument with what to do. `service` outlives this.
  static Expected<std::unique_ptr<HttpServer>> create(Service& service);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

  // SIGINT and SIGTERM call stop() from now on.
  void stop_on_signals();

  // Serves on this thread and the other I/O threads. Shuts the engine down before it returns,
  // since its sinks reach into this server.
  void run();

  // From any thread. The second call ends the drain.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tw
