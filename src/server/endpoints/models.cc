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
          {"parent", nullptr},
          {"max_model_len", service.engine().limits().max_position_embeddings}};
}

Json adapter_json(Service& service, const std::string& name, const std::string& folder) {
  Json json = model_json(service);
  json["id"] = fmt::format("{}:{}", service.model().name, name);
  json["root"] = folder;
  json["parent"] = service.model().name;
  return json;
}

// The model and its adapters.
Json all_models(Service& service) {
  Json models = Json::array({model_json(service)});
  for (const auto& [name, folder] : service.adapters().list()) {
    models.push_back(adapter_json(service, name, folder));
  }
  return models;
}

Json named_model(Service& service, const std::string& id) {
  for (const Json& model : all_models(service)) {
    if (model["id"] == id) return model;
  }
  for (const auto& [name, folder] : service.adapters().list()) {
    if (name == id) return adapter_json(service, name, folder);
  }
  return model_json(service);  // by its path, or "default"
}

}  // namespace

asio::awaitable<void> list_models(Service& service, HttpRequest& request, Responder& responder) {
  const Json list = {{"object", "list"}, {"data", all_models(service)}};
  co_await responder.send(json_response(list));
}

asio::awaitable<void> show_model(Service& service, HttpRequest& request, Responder& responder) {
  const std::string id = request.path.substr(std::string_view("/v1/models/").size());
  if (const auto known = service.find_model(id); !known) {
    co_await responder.send(to_response(known.error()));
  } else {
    co_await responder.send(json_response(named_model(service, id)));
  }
}

}  // namespace tw
