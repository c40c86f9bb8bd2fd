// GET /openapi.json: the endpoints as an OpenAPI document. Paths and methods are the router's, what
// is said of them is in openapi/. Each request body has an example that the server answers with
// 200, and what the schemas forbid it refuses: tests hold it to both.
#include <algorithm>

#include "core/check.h"
#include "http/access.h"
#include "server/embedded_files.h"
#include "server/endpoints/endpoints.h"
#include "server/routes.h"

namespace tw {
namespace {

// A file of openapi/, with this model's numbers in place of "<...>".
Json read_part(std::string_view name, Service& service) {
  const auto files = openapi_files();
  const auto file = std::ranges::find(files, name, &EmbeddedFile::name);
  TW_CHECK(file != files.end());
  std::string text(file->bytes);
  const ModelLimits& limits = service.engine().limits();
  const std::pair<std::string_view, int64_t> numbers[] = {
      {"\"<last_token>\"", limits.vocab_size - 1}, {"\"<hidden_size>\"", limits.hidden_size}};
  for (const auto& [mark, number] : numbers) {
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.replace(at, mark.size(), std::to_string(number));
    }
  }
  auto json = parse_json(text, name);
  TW_CHECK(json);
  return std::move(*json);
}

// Null means absent: properties that are not required may be it.
void allow_null(Json& property) {
  if (property.contains("$ref")) {
    property = {{"anyOf", Json::array({property, {{"type", "null"}}})}};
  } else if (property.contains("anyOf")) {
    property["anyOf"].push_back({{"type", "null"}});
  } else if (property.contains("type") && property["type"] != "null") {
    Json& type = property["type"];
    if (type.is_string()) type = Json::array({type});
    type.push_back("null");
    if (property.contains("enum")) property["enum"].push_back(nullptr);
  }
}

void allow_null_where_optional(Json& schema) {
  if (schema.is_array()) {
    for (Json& part : schema) allow_null_where_optional(part);
  }
  if (!schema.is_object()) return;
  for (const char* parts : {"allOf", "anyOf"}) {
    if (schema.contains(parts)) allow_null_where_optional(schema[parts]);
  }
  if (!schema.contains("properties")) return;
  const Json required = schema.value("required", Json::array());
  for (auto& [name, property] : schema["properties"].items()) {
    const bool is_required = std::ranges::find(required, Json(name)) != required.end();
    if (!is_required) allow_null(property);
  }
}

// /v1/tokenize is /tokenize by another name, and so on.
const Json* find_operation(const Json& operations, std::string_view path) {
  const auto found = operations.find(std::string(path));
  if (found != operations.end()) return &*found;
  const bool is_alias = path.starts_with("/v1/") || path.starts_with("/v2/");
  return is_alias ? find_operation(operations, path.substr(3)) : nullptr;
}

Json content_of(const std::string& type, Json schema) {
  return {{type, {{"schema", std::move(schema)}}}};
}

Json responses_of(const Route& route, const Json& operation) {
  const std::string type = operation.value("content", "application/json");
  Json content = content_of(
      type, type == "application/json" ? Json{{"type", "object"}} : Json{{"type", "string"}});
  const Json body = operation.value("body", Json::object());
  if (body.dump().find("\"stream\"") != std::string::npos ||
      body.dump().find("/Sampling\"") != std::string::npos) {
    content["text/event-stream"] = {
        {"schema",
         {{"description", "each event"},
          {"type", "object"},
          {"required", Json::array({"data"})},
          {"properties", {{"event", {{"type", "string"}}}, {"data", {{"type", "string"}}}}}}}};
  }
  // /generate answers several prompts with an array.
  if (std::string_view(route.path) == "/generate") {
    content[type]["schema"] = {{"type", Json::array({"object", "array"})}};
  }
  Json responses = {{"200", {{"description", "the answer"}, {"content", std::move(content)}}}};
  const Json error = {
      {"description", "an error that says what would be valid"},
      {"content", content_of("application/json", {{"$ref", "#/components/schemas/Error"}})}};
  for (const char* status : {"4XX", "503"}) responses[status] = error;
  return responses;
}

Json operation_json(const Route& route, const Json& operation, std::string_view method) {
  Json json = {{"summary", operation["summary"]},
               {"operationId", fmt::format("{} {}", method, route.path)},
               {"responses", responses_of(route, operation)}};
  if (route.is_prefix) {
    json["parameters"] = Json::array(
        {{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  if (route.is_open) json["security"] = Json::array();
  if (method != "post" || !operation.contains("body")) return json;
  Json schema = operation["body"];
  allow_null_where_optional(schema);
  const bool is_needed = schema.dump().find("\"required\"") != std::string::npos;
  Json content = {{"schema", std::move(schema)}};
  if (operation.contains("example")) content["example"] = operation["example"];
  json["requestBody"] = {{"required", is_needed}, {"content", {{"application/json", content}}}};
  return json;
}

Json document(Service& service) {
  const Json operations = read_part("operations.json", service);
  Json schemas = read_part("schemas.json", service);
  for (auto& [name, schema] : schemas.items()) {
    if (name != "Error") allow_null_where_optional(schema);
  }
  Json paths = Json::object();
  for (const Route& route : all_routes()) {
    const Json* operation = find_operation(operations, route.path);
    if (!operation) continue;
    Json& path = paths[std::string(route.path) + (route.is_prefix ? "{id}" : "")];
    if (allows(route.methods, "GET")) path["get"] = operation_json(route, *operation, "get");
    if (allows(route.methods, "POST")) path["post"] = operation_json(route, *operation, "post");
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "tilewright"}, {"version", TW_VERSION}}},
          {"security", Json::array({{{"key", Json::array()}}})},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", std::move(schemas)},
            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace

asio::awaitable<void> openapi(Service& service, HttpRequest& request, Responder& responder) {
  co_await responder.send(json_response(document(service)));
}

}  // namespace tw
