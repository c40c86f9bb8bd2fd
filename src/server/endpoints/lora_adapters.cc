// POST /load_lora_adapter and /unload_lora_adapter: SGLang's.
#include "server/endpoints/endpoints.h"
#include "server/request_fields.h"

namespace tw {
namespace {

ApiExpected<std::string> read_text(const Json& body, const char* field, const char* meaning) {
  RequestFields fields(body);
  std::string text;
  if (!fields.read(field, text) && !fields.failed()) fields.fail(field, nullptr, meaning);
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return text;
}

ApiExpected<Json> answer_of(Service& service, const Status& status) {
  if (!status) return tl::unexpected(to_api_error(status.error()));
  return Json{{"success", true}, {"loaded_adapters", service.adapters().list()}};
}

ApiExpected<Json> load(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  const auto name = read_text(*json, "lora_name", "the name that requests will give it");
  if (!name) return tl::unexpected(name.error());
  const auto path = read_text(*json, "lora_path", "the adapter's folder, on the server");
  if (!path) return tl::unexpected(path.error());
  // What is wrong with the folder is wrong with the request.
  const Status status = service.adapters().load(*name, *path);
  auto answer = answer_of(service, status);
  if (!answer && !status) answer.error().status = 400;
  return answer;
}

ApiExpected<Json> unload(Service& service, const std::string& body) {
  auto json = parse_body(body);
  if (!json) return tl::unexpected(json.error());
  const auto name = read_text(*json, "lora_name", "the name of a loaded adapter");
  if (!name) return tl::unexpected(name.error());
  return answer_of(service, service.adapters().unload(*name));
}

// On a worker: reading and packing take a while.
asio::awaitable<void> run(Service& service, HttpRequest& request, Responder& responder,
                          ApiExpected<Json> (*action)(Service&, const std::string&)) {
  auto work = [&] { return action(service, request.body); };
  const ApiExpected<Json> answer = co_await service.on_worker(std::move(work));
  HttpResponse response = answer ? json_response(*answer) : to_response(answer.error());
  co_await responder.send(std::move(response));
}

}  // namespace

asio::awaitable<void> load_lora_adapter(Service& service, HttpRequest& request,
                                        Responder& responder) {
  co_await run(service, request, responder, load);
}

asio::awaitable<void> unload_lora_adapter(Service& service, HttpRequest& request,
                                          Responder& responder) {
  co_await run(service, request, responder, unload);
}

}  // namespace tw
