// GET /openapi.json: the endpoints as an OpenAPI document. Paths and methods are the router's; each
// request body has an example that the server answers with 200, which a test holds it to.
#include "server/endpoints/endpoints.h"
#include "server/router.h"

namespace tw {
namespace {

struct Operation {
  std::string_view path;
  const char* summary;
  const char* body;  // the JSON schema of its request body; empty: none
};

// Fields that all generating endpoints read the same way are in docs/api.md; here stand those that
// an endpoint needs, and its own.
constexpr Operation kOperations[] = {
    {"/v1/chat/completions", "Answers a conversation (OpenAI)", R"({
      "type": "object", "required": ["messages"],
      "properties": {
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object",
          "required": ["role"], "properties": {"role": {"type": "string"}}}},
        "model": {"type": "string"}, "stream": {"type": "boolean"},
        "max_completion_tokens": {"type": "integer", "minimum": 0},
        "temperature": {"type": "number", "minimum": 0},
        "tools": {"type": "array", "items": {"type": "object"}}, "tool_choice": {},
        "response_format": {"type": "object"}, "chat_template_kwargs": {"type": "object"}},
      "example": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}})"},
    {"/v1/completions", "Continues texts (OpenAI)", R"({
      "type": "object", "required": ["prompt"],
      "properties": {"prompt": {"oneOf": [{"type": "string"}, {"type": "array"}]},
        "model": {"type": "string"}, "stream": {"type": "boolean"},
        "max_tokens": {"type": "integer", "minimum": 0}, "echo": {"type": "boolean"}},
      "example": {"prompt": "Once", "max_tokens": 4}})"},
    {"/v1/responses", "Answers a conversation as items (OpenAI)", R"({
      "type": "object", "required": ["input"],
      "properties": {"input": {"oneOf": [{"type": "string"}, {"type": "array"}]},
        "instructions": {"type": "string"}, "model": {"type": "string"},
        "stream": {"type": "boolean"}, "max_output_tokens": {"type": "integer", "minimum": 0},
        "tools": {"type": "array", "items": {"type": "object"}}, "text": {"type": "object"}},
      "example": {"input": "Hi", "max_output_tokens": 4}})"},
    {"/v1/messages", "Answers a conversation (Anthropic)", R"({
      "type": "object", "required": ["messages", "max_tokens"],
      "properties": {"messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "max_tokens": {"type": "integer", "minimum": 0}, "model": {"type": "string"},
        "system": {}, "stream": {"type": "boolean"},
        "tools": {"type": "array", "items": {"type": "object"}}},
      "example": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}})"},
    {"/v1/messages/count_tokens", "Counts the tokens of a conversation (Anthropic)", R"({
      "type": "object", "required": ["messages"],
      "properties": {"messages": {"type": "array", "minItems": 1, "items": {"type": "object"}}},
      "example": {"messages": [{"role": "user", "content": "Hi"}]}})"},
    {"/v1/embeddings", "Texts as vectors (OpenAI)", R"({
      "type": "object", "required": ["input"],
      "properties": {"input": {"oneOf": [{"type": "string"}, {"type": "array"}]},
        "model": {"type": "string"}, "dimensions": {"type": "integer", "minimum": 1},
        "encoding_format": {"type": "string", "enum": ["float", "base64"]}},
      "example": {"input": "Hi", "encoding_format": "float"}})"},
    {"/v1/score", "Probabilities of tokens after a query and items (SGLang)", R"({
      "type": "object", "required": ["query", "items", "label_token_ids"],
      "properties": {"query": {"oneOf": [{"type": "string"}, {"type": "array"}]},
        "items": {"oneOf": [{"type": "string"}, {"type": "array"}]},
        "label_token_ids": {"type": "array", "items": {"type": "integer"}},
        "apply_softmax": {"type": "boolean"}, "item_first": {"type": "boolean"},
        "model": {"type": "string"}},
      "example": {"query": "Is it blue? ", "items": ["sky", "grass"], "label_token_ids": [121, 110],
        "apply_softmax": true}})"},
    {"/v1/models", "The served model (OpenAI)", ""},
    {"/v1/models/", "One model (OpenAI)", ""},
    {"/generate", "Continues texts (SGLang)", R"({
      "type": "object",
      "properties": {"text": {"oneOf": [{"type": "string"}, {"type": "array"}]},
        "input_ids": {"type": "array"}, "sampling_params": {}, "stream": {"type": "boolean"},
        "return_logprob": {}, "logprob_start_len": {}, "top_logprobs_num": {}, "rid": {}},
      "example": {"text": "Once", "sampling_params": {"max_new_tokens": 4}}})"},
    {"/tokenize", "Text to token ids", R"({
      "type": "object", "required": ["prompt"],
      "properties": {"prompt": {"oneOf": [{"type": "string"},
          {"type": "array", "items": {"type": "string"}}]},
        "add_special_tokens": {"type": "boolean"}},
      "example": {"prompt": "Hi"}})"},
    {"/detokenize", "Token ids to text", R"({
      "type": "object", "required": ["tokens"],
      "properties": {"tokens": {"type": "array"}, "skip_special_tokens": {"type": "boolean"}},
      "example": {"tokens": [72, 105]}})"},
    {"/health", "200 while the server can answer", ""},
    {"/health_generate", "200 when a token can be generated", ""},
    {"/get_model_info", "The served model (SGLang)", ""},
    {"/get_server_info", "Settings and counters", ""},
    {"/flush_cache", "Drops the prefix cache", ""},
    {"/abort_request", "Ends requests by their rid", R"({
      "type": "object", "properties": {"rid": {"type": "string"}}, "example": {"rid": "none"}})"},
    {"/start_profile", "Begins a trace", R"({"type": "object"})"},
    {"/stop_profile", "Ends the trace", R"({"type": "object"})"},
    {"/metrics", "Prometheus text", ""},
    {"/openapi.json", "This document", ""},
    {"/", "The web page", ""},
    {"/page/", "A file of the web page", ""},
};

// /v1/tokenize is /tokenize by another name.
const Operation* find_operation(std::string_view path) {
  for (const Operation& operation : kOperations) {
    const bool is_alias = path.starts_with("/v1") && path.substr(3) == operation.path;
    if (path == operation.path || is_alias) return &operation;
  }
  return nullptr;
}

Json operation_json(const Route& route, const Operation& operation, std::string_view method) {
  const std::string status = route.is_open && !route.is_prefix ? "503" : "4XX";
  Json json = {
      {"summary", operation.summary},
      {"operationId", fmt::format("{} {}", method, route.path)},
      {"responses",
       {{"200", {{"description", "the answer"}}},
        {status,
         {{"description", "an error that says what would be valid"},
          {"content",
           {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}}}}}};
  if (route.is_prefix) {
    json["parameters"] = Json::array(
        {{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  if (route.is_open) json["security"] = Json::array();
  const bool has_body = method == "post" && operation.body[0] != '\0';
  if (!has_body) return json;
  Json schema = parse_json(operation.body, "schema").value_or(Json::object());
  Json content = {{"schema", schema}};
  if (const auto example = schema.find("example"); example != schema.end()) {
    content["example"] = *example;
    content["schema"].erase("example");
  }
  json["requestBody"] = {{"required", schema.contains("required")},
                         {"content", {{"application/json", content}}}};
  return json;
}

Json document() {
  Json paths = Json::object();
  for (const Route& route : all_routes()) {
    const Operation* operation = find_operation(route.path);
    if (!operation) continue;
    Json& path = paths[std::string(route.path) + (route.is_prefix ? "{id}" : "")];
    if (allows(route, "GET")) path["get"] = operation_json(route, *operation, "get");
    if (allows(route, "POST")) path["post"] = operation_json(route, *operation, "post");
  }
  const Json error = {
      {"type", "object"},
      {"required", Json::array({"error"})},
      {"properties",
       {{"error",
         {{"type", "object"},
          {"required", Json::array({"message", "type"})},
          {"properties", {{"message", {{"type", "string"}}}, {"type", {{"type", "string"}}}}}}}}}};
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "tilewright"}, {"version", TW_VERSION}}},
          {"security", Json::array({{{"key", Json::array()}}})},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", {{"Error", error}}},
            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace

asio::awaitable<void> openapi(Service& service, HttpRequest& request, Responder& responder) {
  static const std::string kDocument = dump_json(document());
  HttpResponse response{.body = kDocument};
  co_await responder.send(std::move(response));
}

}  // namespace tw
