// The HTTP server: accepts connections and runs one coroutine for each (http_connection.h).
//
// Life: create() listens on the port; run() serves until stop() (or a signal) begins the drain.
// While draining, requests under way finish, /health and all new requests are answered 503, and
// after drain_timeout (or a second stop) what still runs is aborted. run() returns when the last
// connection is closed; the application is then shut down.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/status.h"
#include "http/application.h"

namespace tw {

// An address reserved, and not listened on yet: taken before the work of loading a model, so that a
// port in use is found at once, while clients are refused until there is someone to answer them.
class BoundAddress {
 public:
  // A port in use is invalid_argument with what to do. Port 0: one that is free.
  static Expected<BoundAddress> bind(const std::string& host, uint16_t port);
  BoundAddress(BoundAddress&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), host_(std::move(other.host_)) {}
  ~BoundAddress();

  const std::string& host() const { return host_; }
  // The file descriptor, which is the caller's from now on.
  int release() { return std::exchange(socket_, -1); }

 private:
  BoundAddress(int socket, std::string host) : socket_(socket), host_(std::move(host)) {}
  int socket_;
  std::string host_;
};

class HttpServer {
 public:
  // Listens. `application` outlives this.
  static Expected<std::unique_ptr<HttpServer>> create(Application& application,
                                                      BoundAddress address);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // "http://127.0.0.1:30000".
  std::string url() const;

  // SIGINT and SIGTERM call stop() from now on.
  void stop_on_signals();

  // Serves on this thread and the other I/O threads. Shuts the application down before it returns,
  // since what it runs may reach into this server.
  void run();

  // From any thread. The second call ends the drain.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tw
