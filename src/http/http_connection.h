// One HTTP/1.1 connection: reads requests, has them answered, writes the answers; keep-alive,
// pipelining, timeouts and limits.
//
// Runs on one strand. The only translation unit that includes Beast (for parsing).
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>

#include "http/application.h"
#include "http/identifiers.h"

namespace tw {

// What the connections of a server share.
struct ConnectionShared {
  Application& application;
  Identifiers identifiers = {};
  std::atomic<int64_t> buffered_bytes{0};  // of request bodies
};

class HttpConnection {
 public:
  virtual ~HttpConnection() = default;

  // `socket`'s executor is the connection's strand.
  static std::shared_ptr<HttpConnection> create(asio::ip::tcp::socket socket,
                                                ConnectionShared& shared);

  // The coroutine, to be spawned on the socket's executor; returns when the connection is closed.
  virtual asio::awaitable<void> run() = 0;

  // On the connection's executor. Closes the connection now if it waits for a request, else after
  // the answer under way.
  virtual void drain() = 0;
  virtual void close() = 0;
  virtual asio::any_io_executor executor() = 0;
};

}  // namespace tw
