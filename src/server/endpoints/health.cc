// GET /health: whether this server should get requests. GET /health_generate: whether it generates.
#include "server/endpoints/endpoints.h"
#include "server/generation_group.h"

namespace tw {
namespace {

// Empty when all is well.
std::string problem(Service& service) {
  if (service.draining()) return "the server is shutting down";
  const double stuck = service.engine().stats().seconds_since_progress;
  if (stuck <= service.config().watchdog_seconds) return {};
  return fmt::format("the engine has made no progress for {:.0f} s", stuck);
}

HttpResponse ok() {
  return {.content_type = "text/plain", .body = "OK\n"};
}

HttpResponse unavailable(std::string message) {
  return to_response(to_api_error({ErrorCode::unavailable, std::move(message)}));
}

}  // namespace

asio::awaitable<void> health(Service& service, HttpRequest& request, Responder& responder) {
  std::string found = problem(service);
  HttpResponse response = found.empty() ? ok() : unavailable(std::move(found));
  co_await responder.send(std::move(response));
}

asio::awaitable<void> health_generate(Service& service, HttpRequest& request,
                                      Responder& responder) {
  if (std::string found = problem(service); !found.empty()) {
    co_await responder.send(unavailable(std::move(found)));
    co_return;
  }
  GenerationTask task;
  task.prompt = {0};
  task.sampling.temperature = 0;
  task.sampling.max_new_tokens = 1;
  task.sampling.ignore_eos = true;
  std::vector<GenerationTask> tasks(1, task);
  const auto group = GenerationGroup::start(service, responder, std::move(tasks));
  if (!group) {
    co_await responder.send(to_response(group.error()));
    co_return;
  }
  for (;;) {
    const auto updates = co_await (*group)->next();
    if (updates.empty()) break;
    if (updates.front().error) {
      co_await responder.send(to_response(to_api_error(*updates.front().error)));
      co_return;
    }
  }
  if ((*group)->cancelled()) co_return;
  co_await responder.send(ok());
}

}  // namespace tw
