// `tilewright router`: one address in front of several servers.
#include "router/router.h"

#include <algorithm>
#include <memory>

#include "apps/commands.h"
#include "apps/descriptor_limit.h"
#include "core/log.h"
#include "http/http_server.h"

namespace tw {
namespace {

struct RouterOptions {
  RouterConfig router;
  std::vector<std::string> worker_urls;
  LogOptions log;
  double drain_seconds = 30;
  double request_timeout_seconds = 1800;
  double check_interval_seconds = 5;
  double check_timeout_seconds = 5;
  bool disable_retries = false;

  void add_to(CLI::App& command);
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

void RouterOptions::add_to(CLI::App& command) {
  router.max_connections = 4096;
  router.io_threads = 2;
  const auto option = [&](const char* flags, auto& value, const std::string& help) {
    return command.add_option(flags, value, help)->capture_default_str();
  };
  option("--worker-urls", worker_urls,
         "Servers of the same model: http://HOST:PORT ... More can be added while the router runs: "
         "POST /add_worker?url=URL");
  option("--host", router.host, "Address to listen on; 0.0.0.0 for all");
  option("--port", router.port, "Port to listen on (0: one that is free)");
  option("--api-key", router.api_key,
         "Key that clients must send as Authorization: Bearer KEY; it is passed on to the servers");
  option("--policy", router.policy.name,
         "Who gets a request: cache_aware (the server that has seen the prompt's beginning, unless "
         "it has too much to do), power_of_two (the less loaded of two), round_robin, random")
      ->check(CLI::IsMember(Policy::names()));
  option("--cache-threshold", router.policy.cache_threshold,
         "Share of a prompt that a server must have seen for cache_aware to prefer it")
      ->check(CLI::Range(0.0, 1.0));
  option("--balance-abs-threshold", router.policy.balance_abs_threshold,
         "cache_aware looks at the load alone where servers differ by more requests than this")
      ->check(CLI::Range(0, 1 << 20));
  option("--balance-rel-threshold", router.policy.balance_rel_threshold, "... and by this factor")
      ->check(CLI::Range(1.0, 1e6));
  option("--max-tree-size", router.policy.max_tree_size,
         "Bytes of prompts that cache_aware remembers per server")
      ->transform(CLI::AsSizeValue(false));
  option("--retry-max-retries", router.max_retries,
         "Other servers that a request is given to when one cannot be reached, breaks off before "
         "its answer began, or is too busy")
      ->check(CLI::Range(0, 100));
  command.add_flag("--disable-retries", disable_retries, "One server per request");
  option("--request-timeout-secs", request_timeout_seconds,
         "Seconds without anything from a server after which its answer is given up")
      ->check(CLI::Range(0.1, 1e6));
  option("--health-check-interval-secs", check_interval_seconds, "Between two checks of a server")
      ->check(CLI::Range(0.05, 1e6));
  option("--health-check-timeout-secs", check_timeout_seconds, "For the answer to a check")
      ->check(CLI::Range(0.05, 1e6));
  option("--health-failure-threshold", router.health.failures,
         "Failed checks in a row after which a server gets no requests")
      ->check(CLI::Range(1, 1000));
  option("--health-success-threshold", router.health.successes,
         "Answered checks in a row after which it gets some again")
      ->check(CLI::Range(1, 1000));
  option("--max-connections", router.max_connections, "Connections open at once; more are refused")
      ->check(CLI::Range(1, 1 << 20));
  option("--max-request-size", router.max_request_bytes,
         "Largest request body in bytes; beyond it the answer is 413")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 34));
  option("--drain-timeout", drain_seconds,
         "Seconds that requests under way have after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0.0, 86400.0));
  option("--log-level", log.level, "debug, info, warning or error");
  option("--log-format", log.format, "Lines for people (text) or JSON objects (json)");
}

Status route(RouterOptions options) {
  RouterConfig config = options.router;
  for (const std::string& url : options.worker_urls) {
    auto worker = WorkerAddress::parse(url);
    if (!worker) return forward_error(worker);
    config.workers.push_back(std::move(*worker));
  }
  config.timeouts.silence = milliseconds(options.request_timeout_seconds);
  config.health_check_interval = milliseconds(options.check_interval_seconds);
  config.health_check_timeout = milliseconds(options.check_timeout_seconds);
  config.drain_timeout = milliseconds(options.drain_seconds);
  if (options.disable_retries) config.max_retries = 0;
  // Every connection of a client may have one to a worker.
  config.max_connections = raise_descriptor_limit(config.max_connections, 2);
  auto address = BoundAddress::bind(config.host, config.port);
  if (!address) return forward_error(address);
  auto router = Router::create(std::move(config));
  if (!router) return forward_error(router);
  auto server = HttpServer::create(**router, std::move(*address));
  if (!server) return forward_error(server);
  (*server)->stop_on_signals();
  log::info("routing to {} servers by {} on {} (OpenAI API at {}/v1)", options.worker_urls.size(),
            options.router.policy.name, (*server)->url(), (*server)->url());
  log::info("stop with Ctrl-C");
  (*server)->run();
  log::info("stopped");
  return {};
}

}  // namespace

void add_router_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "router", "One address in front of several servers: prefixes, load, health, retries");
  auto options = std::make_shared<RouterOptions>();
  options->add_to(*command);
  command->callback([options, &exit_code] {
    Status status = configure_log(options->log);
    if (status) status = route(*options);
    if (!status) exit_code = report(status.error());
  });
}

}  // namespace tw
