// GET or POST /flush_cache: drops the prefix cache; 400 while requests run.
#include "server/endpoints/endpoints.h"

namespace tw {

asio::awaitable<void> flush_cache(Service& service, HttpRequest& request, Responder& responder) {
  // The engine answers between two steps: not for an I/O thread to wait for.
  auto flush = [&service] { return service.engine().flush_cache(); };
  const bool flushed = co_await service.on_worker(std::move(flush));
  HttpResponse response{.content_type = "text/plain", .body = "Cache flushed.\n"};
  if (!flushed) {
    response = to_response(
        {.message = "the cache cannot be flushed while requests are running or waiting"});
  }
  co_await responder.send(std::move(response));
}

}  // namespace tw
