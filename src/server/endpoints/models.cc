// GET /v1/models and /v1/models/{id}
#include "server/endpoints/endpoints.h"

namespace tw {
namespace {

Json model_json(Service& service) {
  return {{"id", service.model().name},
          {"object", "model"},
          {"created", service.created()},
          {"owned_by", "tilewright"},
          {"root", service.model().path},
          {"max_model_len", service.engine().limits().max_position_embeddings}};
}

}  // namespace

asio::awaitable<void> list_models(Service& service, HttpRequest& request, Responder& responder) {
  const Json list = {{"object", "list"}, {"data", Json::array({model_json(service)})}};
  co_await responder.send(json_response(list));
}

asio::awaitable<void> show_model(Service& service, HttpRequest& request, Responder& responder) {
  const std::string id = request.path.substr(std::string_view("/v1/models/").size());
  if (auto known = service.check_model(id); !known) {
    co_await responder.send(to_response(known.error()));
  } else {
    co_await responder.send(json_response(model_json(service)));
  }
}

}  // namespace tw
