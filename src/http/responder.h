// How an endpoint answers, whatever the transport; http_connection.cc implements it over a socket.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>

#include "http/http_message.h"

namespace tw {

namespace asio = boost::asio;

// Answers one request, once: with send(), or with begin_stream(), write() ... end_stream().
// Used on its executor alone. Writes wait until the client took what came before (up to the
// server's send timeout), so a slow reader holds up its own stream and nothing else.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual asio::any_io_executor executor() = 0;

  // Of the request being answered, for the log.
  virtual const std::string& request_id() const = 0;

  virtual asio::awaitable<void> send(HttpResponse response) = 0;

  // These answer false when the client is gone; the endpoint then has nothing left to do.
  virtual asio::awaitable<bool> begin_stream(std::string content_type) = 0;
  virtual asio::awaitable<bool> write(std::string data) = 0;
  virtual asio::awaitable<void> end_stream() = 0;

  // Calls `on_gone` once, on the executor, when the client closes or resets its connection before
  // the answer is complete. A client that shuts down only its sending side counts as gone: the two
  // cannot be told apart until a write fails, and generating for nobody costs more.
  virtual void watch_client(std::function<void()> on_gone) = 0;
  virtual bool client_gone() const = 0;
};

}  // namespace tw
