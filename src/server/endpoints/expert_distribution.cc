// POST /start_expert_distribution_record, /stop_expert_distribution_record and
// /dump_expert_distribution_record: how often tokens chose each expert in between, by layer, and
// where the experts lie. SGLang's names. The answer of the last, as a file, is what
// --init-expert-location takes.
#include "server/endpoints/endpoints.h"

namespace tw {
namespace {

Json to_json(const ExpertDistribution& distribution) {
  Json layers = Json::object();
  for (const auto& layer : distribution.layers) {
    layers[layer.name] = {{"choices", layer.choices},
                          {"experts_of_group", layer.placement.slots},
                          {"imbalance", layer.placement.imbalance(layer.choices)}};
  }
  return {{"layers", std::move(layers)}};
}

HttpResponse respond(const Status& status, const char* text) {
  if (!status) return to_response(to_api_error(status.error()));
  return {.content_type = "text/plain", .body = text};
}

}  // namespace

// The engine answers between two steps: not for an I/O thread to wait for.
asio::awaitable<void> start_expert_recording(Service& service, HttpRequest& request,
                                             Responder& responder) {
  auto start = [&service] { return service.engine().start_expert_recording(); };
  const Status started = co_await service.on_worker(std::move(start));
  co_await responder.send(respond(started, "Recording the experts' distribution.\n"));
}

asio::awaitable<void> stop_expert_recording(Service& service, HttpRequest& request,
                                            Responder& responder) {
  auto stop = [&service] { return service.engine().stop_expert_recording(); };
  const Status stopped = co_await service.on_worker(std::move(stop));
  co_await responder.send(respond(stopped, "Stopped recording the experts' distribution.\n"));
}

asio::awaitable<void> dump_expert_recording(Service& service, HttpRequest& request,
                                            Responder& responder) {
  auto dump = [&service] { return service.engine().dump_expert_recording(); };
  const Expected<ExpertDistribution> dumped = co_await service.on_worker(std::move(dump));
  HttpResponse response =
      dumped ? json_response(to_json(*dumped)) : to_response(to_api_error(dumped.error()));
  co_await responder.send(std::move(response));
}

}  // namespace tw
