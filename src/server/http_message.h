// What an endpoint sees of HTTP: a request as values, and a Responder to answer it with.
//
// Nothing here knows the transport. http_connection.cc implements Responder over a socket; tests
// may implement it over a string.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tw {

namespace asio = boost::asio;

struct HttpRequest {
  std::string method;         // "GET"
  std::string target;         // as sent: "/v1/models?x=1"
  std::string path;           // decoded, without the query: "/v1/models"
  std::string authorization;  // the header's value; empty without one
  std::string body;
  std::string client;  // "127.0.0.1:51234"
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // beyond the usual ones
};

// Answers one request, once: with send(), or with begin_stream(), write() ... end_stream().
// Used on its executor alone. Writes wait until the client took what came before (up to the
// server's send timeout), so a slow reader holds up its own stream and nothing else.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual asio::any_io_executor executor() = 0;

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

// Reason phrase of a status: "Not Found".
std::string_view reason_phrase(int status);

// %41 -> A. Malformed escapes stay as they are.
std::string percent_decode(std::string_view text);

}  // namespace tw
