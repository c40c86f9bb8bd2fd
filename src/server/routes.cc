#include "server/routes.h"

#include <algorithm>

#include "core/log.h"
#include "http/access.h"

namespace tw {
namespace {

constexpr size_t kMaxLoggedBytes = 64 << 10;  // of a body

constexpr std::string_view kGet = "GET, HEAD, OPTIONS";
constexpr std::string_view kPost = "POST, OPTIONS";
constexpr std::string_view kGetOrPost = "GET, HEAD, POST, OPTIONS";

constexpr Route kRoutes[] = {
    {"/", kGet, page, false, true, true},
    {"/page/", kGet, page, true, true, true},
    {"/v1/chat/completions", kPost, chat_completions},
    {"/v1/completions", kPost, completions},
    {"/v1/responses", kPost, responses},
    {"/v1/messages", kPost, messages},
    {"/v1/messages/count_tokens", kPost, count_message_tokens},
    {"/v1/embeddings", kPost, embeddings},
    {"/v1/score", kPost, score},
    {"/rerank", kPost, rerank},
    {"/v1/rerank", kPost, rerank},
    {"/v2/rerank", kPost, rerank},
    {"/v1/models", kGet, list_models},
    {"/v1/models/", kGet, show_model, true},
    {"/generate", kPost, generate},
    {"/tokenize", kPost, tokenize},
    {"/v1/tokenize", kPost, tokenize},
    {"/detokenize", kPost, detokenize},
    {"/v1/detokenize", kPost, detokenize},
    {"/health", kGet, health, false, true, true},
    {"/health_generate", kGet, health_generate, false, false, true},
    {"/get_model_info", kGet, model_info},
    {"/get_server_info", kGet, server_info},
    {"/flush_cache", kGetOrPost, flush_cache},
    {"/abort_request", kPost, abort_request},
    {"/load_lora_adapter", kPost, load_lora_adapter},
    {"/unload_lora_adapter", kPost, unload_lora_adapter},
    {"/start_profile", kPost, start_profile},
    {"/stop_profile", kPost, stop_profile},
    {"/start_expert_distribution_record", kPost, start_expert_recording},
    {"/stop_expert_distribution_record", kPost, stop_expert_recording},
    {"/dump_expert_distribution_record", kPost, dump_expert_recording},
    {"/metrics", kGet, metrics, false, true, true},
    {"/openapi.json", kGet, openapi},
};

// One line: outside of strings, where they are not allowed, control characters are white space.
void log_body(const HttpRequest& request) {
  std::string body = shorten(request.body, kMaxLoggedBytes);
  std::ranges::replace_if(
      body, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  const LogRequestScope about(request.id);
  log::info("{} {}: {}", request.method, shorten(request.target, 200), body);
}

std::string all_paths() {
  std::string paths;
  for (const Route& route : kRoutes) {
    if (!route.is_prefix) paths += fmt::format("{}{}", paths.empty() ? "" : ", ", route.path);
  }
  return paths;
}

}  // namespace

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool fits = route.is_prefix
                          ? path.starts_with(route.path) && path.size() > route.path.size()
                          : path == route.path;
    if (fits) return &route;
  }
  return nullptr;
}

std::span<const Route> all_routes() {
  return kRoutes;
}

asio::awaitable<void> dispatch(Service& service, const Route* route, HttpRequest& request,
                               Responder& responder) {
  if (!route) {
    auto response =
        to_response({.status = 404,
                     .message = fmt::format("{} {}: no such endpoint; there are {}", request.method,
                                            shorten(request.path, 200), all_paths()),
                     .code = "not_found"});
    co_await responder.send(std::move(response));
    co_return;
  }
  const auto refusal = route->is_open ? std::nullopt : check_key(service.config().api_key, request);
  if (request.method == "OPTIONS") {
    // Without a key: the answer carries no secrets.
    auto response = preflight(route->methods);
    co_await responder.send(std::move(response));
  } else if (!allows(route->methods, request.method)) {
    auto response = method_not_allowed(request, route->methods);
    co_await responder.send(std::move(response));
  } else if (refusal) {
    auto response = to_response(*refusal);
    co_await responder.send(std::move(response));
  } else if (!route->is_open && service.draining()) {
    auto response =
        to_response(to_api_error({ErrorCode::unavailable, "the server is shutting down"}));
    co_await responder.send(std::move(response));
  } else {
    if (service.config().log_requests && !request.body.empty()) log_body(request);
    co_await route->endpoint(service, request, responder);
  }
}

}  // namespace tw
