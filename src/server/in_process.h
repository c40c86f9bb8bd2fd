// The endpoints without a socket, for programs that have the engine inside: requests are answered
// as over HTTP.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "http/http_message.h"
#include "server/service.h"

namespace tw {

// An answer under way.
class InProcessExchange {
 public:
  virtual ~InProcessExchange() = default;
  // The answer is not wanted any more: as if a client had closed its connection. Harmless after
  // the end, and after the server's.
  virtual void cancel() = 0;
};

class InProcessServer {
 public:
  // Pieces of an answer's body in order, each with its status; then once nothing, at the end, which
  // also comes after cancel(). Called on the server's thread.
  using Sink = std::function<void(int status, std::optional<std::string> piece)>;

  explicit InProcessServer(Service& service);
  // Aborts what still runs, stops the service's engine and waits for all ends.
  ~InProcessServer();

  // `path` and `body` as of a request whose key is accepted; unknown paths are answered 404.
  std::shared_ptr<InProcessExchange> start(std::string method, std::string path, std::string body,
                                           Sink sink);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tw
