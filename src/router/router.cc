#include "router/router.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <span>
#include <utility>

#include "core/json.h"
#include "core/log.h"
#include "http/access.h"
#include "router/prompt_text.h"

namespace tw {
namespace {

constexpr std::string_view kMethods = "GET, HEAD, POST, OPTIONS";

// What concerns every server: its caches, adapters, requests and records.
constexpr std::string_view kForAll[] = {"/flush_cache",
                                        "/abort_request",
                                        "/load_lora_adapter",
                                        "/unload_lora_adapter",
                                        "/start_profile",
                                        "/stop_profile",
                                        "/start_expert_distribution_record",
                                        "/stop_expert_distribution_record",
                                        "/dump_expert_distribution_record"};

constexpr std::string_view kOwn[] = {"/health",     "/metrics",       "/list_workers",
                                     "/add_worker", "/remove_worker", "/readiness"};

// Endpoints of one server that have a label of their own in the metrics.
constexpr std::string_view kCounted[] = {"/v1/chat/completions",
                                         "/v1/completions",
                                         "/v1/responses",
                                         "/v1/messages",
                                         "/v1/embeddings",
                                         "/v1/score",
                                         "/v1/rerank",
                                         "/v1/models",
                                         "/generate",
                                         "/tokenize"};

using Paths = std::span<const std::string_view>;

bool contains(Paths all, std::string_view path) {
  return std::ranges::find(all, path) != all.end();
}

// Of the label only names that are known here: what clients send would make them many.
std::string_view label_of(std::string_view path) {
  for (const Paths paths : {Paths(kForAll), Paths(kOwn), Paths(kCounted)}) {
    const auto found = std::ranges::find(paths, path);
    if (found != paths.end()) return *found;
  }
  return "other";
}

// The value of `url` in "/add_worker?url=http://...".
std::string url_parameter(const std::string& target) {
  const size_t question = target.find('?');
  std::string_view query = question == std::string::npos
                               ? std::string_view()
                               : std::string_view(target).substr(question + 1);
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view parameter = query.substr(0, end);
    if (parameter.starts_with("url=")) return percent_decode(parameter.substr(4));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

HttpResponse json_response(const Json& json, int status = 200) {
  return {.status = status, .body = dump_json(json)};
}

bool is_event_stream(const HttpResponse& response) {
  return response.status == 200 && response.content_type.starts_with("text/event-stream");
}

// Another worker may do better: this one is full, shutting down, or its engine has stopped.
bool is_worth_another(int status) {
  return status == 429 || status == 503;
}

// For the metrics: 499 where the client went or the drain was over, 0 where the worker gave none.
int status_of(const Expected<HttpResponse>& response) {
  if (response) return response->status;
  return response.error().code == ErrorCode::cancelled ? 499 : 0;
}

// Clients need not know where the workers are.
ApiError server_failed(const Error& reason) {
  return to_api_error({ErrorCode::unavailable,
                       fmt::format("the server of this request failed: {}", reason.message)});
}

HttpResponse no_worker() {
  return to_response(
      to_api_error({ErrorCode::unavailable,
                    "no worker takes requests; /list_workers of the router says how they are"}));
}

}  // namespace

Expected<std::unique_ptr<Router>> Router::create(RouterConfig config) {
  auto policy = Policy::create(config.policy);
  if (!policy) return forward_error(policy);
  std::unique_ptr<Router> router(new Router(std::move(config), std::move(*policy)));
  for (const WorkerAddress& worker : router->config_.workers) {
    if (Status status = router->workers_.add(worker); !status) return forward_error(status);
  }
  asio::co_spawn(router->checks_, router->check_for_ever(), asio::detached);
  router->checker_ = std::thread([&checks = router->checks_] { checks.run(); });
  return router;
}

Router::Router(RouterConfig config, std::unique_ptr<Policy> policy)
    : config_(std::move(config)), policy_(std::move(policy)), workers_(config_.health) {}

Router::~Router() {
  shutdown();
}

void Router::shutdown() {
  checks_.stop();
  if (checker_.joinable()) checker_.join();
}

void Router::abort_all() {
  std::lock_guard lock(upstreams_mutex_);
  for (const auto& upstream : upstreams_) {
    asio::post(upstream->executor(), [upstream] { upstream->cancel(); });
  }
}

asio::awaitable<Application::Answered> Router::answer(HttpRequest& request, Responder& responder) {
  const Answered answered{label_of(request.path),
                          request.path == "/health" || request.path == "/metrics"};
  if (auto own = own_answer(request)) {
    co_await responder.send(std::move(*own));
  } else if (contains(kForAll, request.path)) {
    co_await send_to_all(request, responder);
  } else {
    co_await forward(request, responder);
  }
  co_return answered;
}

std::optional<HttpResponse> Router::own_answer(const HttpRequest& request) {
  if (request.method == "OPTIONS") return preflight(kMethods);
  const bool changes = request.path == "/add_worker" || request.path == "/remove_worker";
  const std::string_view methods = changes                        ? "POST, OPTIONS"
                                   : contains(kOwn, request.path) ? "GET, HEAD, OPTIONS"
                                                                  : kMethods;
  if (!allows(methods, request.method)) return method_not_allowed(request, methods);
  if (request.path == "/health" || request.path == "/readiness") return health();
  if (request.path == "/metrics") {
    return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_.render(workers_.all())};
  }
  if (const auto refusal = check_key(config_.api_key, request)) return to_response(*refusal);
  if (request.path == "/list_workers") return list_workers();
  if (changes) return change_workers(request);
  if (draining()) {
    return to_response(to_api_error({ErrorCode::unavailable, "the router is shutting down"}));
  }
  return std::nullopt;
}

HttpResponse Router::health() const {
  const size_t healthy = workers_.healthy().size(), all = workers_.all().size();
  const char* status = draining() ? "shutting down" : healthy > 0 ? "ok" : "no worker";
  return json_response({{"status", status}, {"healthy_workers", healthy}, {"workers", all}},
                       !draining() && healthy > 0 ? 200 : 503);
}

HttpResponse Router::list_workers() const {
  Json urls = Json::array(), workers = Json::array();
  for (const auto& worker : workers_.all()) {
    urls.push_back(worker->url());
    workers.push_back({{"url", worker->url()},
                       {"is_healthy", worker->is_healthy()},
                       {"load", worker->num_running()}});
  }
  return json_response({{"urls", std::move(urls)}, {"workers", std::move(workers)}});
}

HttpResponse Router::change_workers(const HttpRequest& request) {
  const auto address = WorkerAddress::parse(url_parameter(request.target));
  if (!address) return to_response(to_api_error(address.error(), "url"));
  const bool adds = request.path == "/add_worker";
  if (Status status = adds ? workers_.add(*address) : workers_.remove(*address); !status) {
    return to_response(to_api_error(status.error(), "url"));
  }
  policy_->forget(address->url);
  log::info("worker {} {}", address->url, adds ? "added" : "removed");
  asio::post(checks_, [this] { next_check_.cancel(); });  // now
  return list_workers();
}

std::shared_ptr<Worker> Router::choose(const std::string& text,
                                       const std::vector<std::shared_ptr<Worker>>& tried) {
  auto workers = workers_.healthy();
  std::erase_if(
      workers, [&](const auto& worker) { return std::ranges::find(tried, worker) != tried.end(); });
  if (workers.empty()) return nullptr;
  return workers[policy_->choose(workers, text)];
}

asio::awaitable<void> Router::forward(const HttpRequest& request, Responder& responder) {
  const std::string text = prompt_text(request.body);
  std::vector<std::shared_ptr<Worker>> tried;
  HttpResponse last = no_worker();
  while (tried.size() <= static_cast<size_t>(config_.max_retries)) {
    const auto worker = choose(text, tried);
    if (!worker) break;
    if (!tried.empty()) metrics_.count_retry();
    tried.push_back(worker);
    const Worker::Lease lease(worker);
    Attempt result = co_await attempt(request, *worker, responder);
    if (responder.client_gone()) co_return;
    if (result.is_stream) {
      co_await pass_stream(std::move(result), *worker, responder);
      co_return;
    }
    if (result.response) {
      last = std::move(*result.response);
      if (!is_worth_another(last.status)) break;
    } else {
      last = to_response(server_failed(result.response.error()));
      if (result.response.error().code == ErrorCode::cancelled) break;  // the drain is over
      log::warn("worker {}: {}", worker->url(), result.response.error().message);
    }
  }
  co_await responder.send(std::move(last));
}

asio::awaitable<Router::Attempt> Router::attempt(const HttpRequest& request, Worker& worker,
                                                 Responder& responder) {
  auto upstream = open_upstream(responder.executor(), worker.address(), config_.timeouts);
  responder.watch_client([weak = std::weak_ptr(upstream)] {
    if (const auto alive = weak.lock()) alive->cancel();
  });
  auto response = co_await upstream->open(request);
  Attempt result{upstream, std::move(response)};
  if (result.response) result.is_stream = is_event_stream(*result.response);
  while (result.response && !result.is_stream) {
    const auto piece = co_await upstream->read();
    if (!piece) {
      result.response = tl::unexpected(piece.error());
    } else if (piece->empty()) {
      break;
    } else {
      result.response->body += *piece;
    }
  }
  metrics_.count_worker_answer(worker.url(), status_of(result.response));
  if (!result.response && result.response.error().code == ErrorCode::not_found) {
    worker.count_refusal();
    policy_->forget(worker.url());
  }
  if (!result.is_stream) forget_upstream(upstream);
  co_return result;
}

// What has gone to the client cannot be taken back: a stream that breaks off ends with an error.
asio::awaitable<void> Router::pass_stream(Attempt attempt, const Worker& worker,
                                          Responder& responder) {
  bool listens = co_await responder.begin_stream(attempt.response->content_type);
  while (listens) {
    auto piece = co_await attempt.upstream->read();
    if (piece && piece->empty()) break;
    if (piece) {
      listens = co_await responder.write(std::move(*piece));
      continue;
    }
    if (!responder.client_gone()) {
      log::warn("worker {}: a stream broke off: {}", worker.url(), piece.error().message);
    }
    std::string event =
        fmt::format("data: {}\n\n", dump_json(to_json(server_failed(piece.error()))));
    co_await responder.write(std::move(event));
    break;
  }
  co_await responder.end_stream();
  attempt.upstream->cancel();
  forget_upstream(attempt.upstream);
}

asio::awaitable<void> Router::send_to_all(const HttpRequest& request, Responder& responder) {
  const auto workers = workers_.healthy();
  Json answers = Json::object();
  std::string failed;
  for (const auto& worker : workers) {
    const Attempt result = co_await attempt(request, *worker, responder);
    if (responder.client_gone()) co_return;
    const int status = status_of(result.response);
    const std::string body =
        result.response ? result.response->body : result.response.error().message;
    const auto json = parse_json(body, "answer");
    answers[worker->url()] = {{"status", status}, {"body", json ? *json : Json(body)}};
    if (status / 100 != 2) failed += fmt::format("{}{}", failed.empty() ? "" : ", ", worker->url());
  }
  Json json = {{"workers", std::move(answers)}};
  if (!failed.empty()) {
    json["error"] =
        to_json(ApiError{.status = 502,
                         .message = fmt::format("{}: not done by {}", request.path, failed),
                         .type = "server_error"})["error"];
  }
  HttpResponse response =
      workers.empty() ? no_worker() : json_response(json, failed.empty() ? 200 : 502);
  co_await responder.send(std::move(response));
}

asio::awaitable<void> Router::check_for_ever() {
  while (true) {
    for (const auto& worker : workers_.all()) {
      asio::co_spawn(checks_, check(worker), asio::detached);
    }
    next_check_.expires_after(config_.health_check_interval);
    boost::system::error_code cancelled;  // by a worker that was added
    co_await next_check_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
}

asio::awaitable<void> Router::check(std::shared_ptr<Worker> worker) {
  const UpstreamTimeouts timeouts{config_.health_check_timeout, config_.health_check_timeout};
  const auto upstream = Upstream::create(checks_.get_executor(), worker->address(), timeouts);
  HttpRequest request;
  request.method = "GET";
  request.target = request.path = "/health";
  request.id = identifiers_.make("check-");
  const auto response = co_await upstream->open(request);
  const bool was_healthy = worker->is_healthy();
  worker->count_check(response && response->status == 200);
  // A worker that comes back is mostly one that was started again.
  if (was_healthy && !worker->is_healthy()) policy_->forget(worker->url());
}

std::shared_ptr<Upstream> Router::open_upstream(asio::any_io_executor executor,
                                                const WorkerAddress& worker,
                                                const UpstreamTimeouts& timeouts) {
  auto upstream = Upstream::create(std::move(executor), worker, timeouts);
  std::lock_guard lock(upstreams_mutex_);
  upstreams_.insert(upstream);
  return upstream;
}

void Router::forget_upstream(const std::shared_ptr<Upstream>& upstream) {
  std::lock_guard lock(upstreams_mutex_);
  upstreams_.erase(upstream);
}

}  // namespace tw
