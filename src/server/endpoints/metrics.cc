// GET /metrics: Prometheus text.
#include "server/endpoints/endpoints.h"

namespace tw {

asio::awaitable<void> metrics(Service& service, HttpRequest& request, Responder& responder) {
  HttpResponse response{
      .content_type = "text/plain; version=0.0.4; charset=utf-8",
      .body = service.metrics().render(service.engine().stats(), service.grammars().costs())};
  co_await responder.send(std::move(response));
}

}  // namespace tw
