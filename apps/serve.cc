// `tilewright serve`: the OpenAI-compatible server.
#include <memory>

#include "apps/commands.h"
#include "apps/descriptor_limit.h"
#include "apps/model_session.h"
#include "apps/on_hosts.h"
#include "apps/served_model.h"
#include "core/log.h"
#include "http/http_server.h"

namespace tw {
namespace {

struct ServeOptions {
  ModelOptions model;
  ServerConfig server;
  ServedModelOptions served;
  double drain_seconds = 30;

  void add_to(CLI::App& command);
};

void ServeOptions::add_to(CLI::App& command) {
  model.measure_machine = true;
  model.add_to(command);
  model.add_adapters_to(command);
  model.hosts.add_to(command);
  const auto option = [&](const char* flags, auto& value, const std::string& help) {
    return command.add_option(flags, value, help)->capture_default_str()->group("Server");
  };
  option("--host", server.host, "Address to listen on; 0.0.0.0 for all");
  option("--port", server.port, "Port to listen on (0: one that is free)");
  option("--api-key", server.api_key, "Key that clients must send as Authorization: Bearer KEY");
  command
      .add_flag("--log-requests", server.log_requests,
                "Log the bodies of requests, prompts included (default: only that they came)")
      ->group("Server");
  command
      .add_flag("!--skip-machine-limits", model.measure_machine,
                "Do not measure at start what the machine can do at most, which /metrics, profiles "
                "and the web page compare with (a fifth of a second)")
      ->group("Server");
  served.add_to(command);
  option("--max-connections", server.max_connections, "Connections open at once; more are refused")
      ->check(CLI::Range(1, 1 << 20));
  option("--max-request-size", server.max_request_bytes,
         "Largest request body in bytes; beyond it the answer is 413")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 34));
  option("--profile-dir", server.profile_dir,
         "Folder for the traces of /start_profile and /stop_profile (default: no profiles)")
      ->check(CLI::ExistingDirectory);
  option("--drain-timeout", drain_seconds,
         "Seconds that requests under way have after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0.0, 86400.0));
  option("--watchdog-timeout", server.watchdog_seconds,
         "Seconds without progress of the engine after which /health answers 503")
      ->check(CLI::Range(1.0, 86400.0));
}

std::string curl_example(const std::string& url, const ServeOptions& options, bool chat) {
  const std::string key = options.server.api_key.empty() ? "" : " -H 'Authorization: Bearer KEY'";
  const char* path = chat ? "chat/completions" : "completions";
  const char* body = chat ? R"({"messages": [{"role": "user", "content": "Hello!"}]})"
                          : R"({"prompt": "Once upon a time"})";
  return fmt::format("curl {}/v1/{}{} -H 'Content-Type: application/json' -d '{}'", url, path, key,
                     body);
}

// `link`: to the other hosts; null: there are none.
Status serve(ServeOptions options, HostLink* link) {
  if (Status status = options.served.check(); !status) return status;
  auto address = BoundAddress::bind(options.server.host, options.server.port);
  if (!address) return forward_error(address);
  auto session = ModelSession::open(options.model, link);
  if (!session) return forward_error(session);
  auto model = make_served_model(options.served, options.model, *session);
  if (!model) return forward_error(model);
  const std::string name = model->name;
  const bool chat = model->chat_template != nullptr;
  options.server.drain_timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.drain_seconds * 1e3));
  options.server.max_connections = raise_descriptor_limit(options.server.max_connections);
  Service service(options.server, std::move(*model), *session->engine);
  if (Status status = load_adapters(options.model, service.adapters()); !status) {
    return status;
  }
  auto server = HttpServer::create(service, std::move(*address));
  if (!server) return forward_error(server);
  (*server)->stop_on_signals();
  session->engine->on_failure([&server] { (*server)->stop(); });
  const std::string url = (*server)->url();
  log::info("serving {} on {} (OpenAI API at {}/v1)", name, url, url);
  log::info("try: {}", curl_example(url, options, chat));
  log::info("stop with Ctrl-C");
  (*server)->run();
  log::info("stopped");
  return session->engine->failure();
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("serve", "Serve a model over HTTP (OpenAI and SGLang APIs)");
  auto options = std::make_shared<ServeOptions>();
  options->add_to(*command);
  command->callback([options, &exit_code] {
    if (Status status = configure_log(options->model.log); !status) {
      exit_code = report(status.error());
      return;
    }
    exit_code = run_on_hosts(options->model, [&](HostLink* link) { return serve(*options, link); });
  });
}

}  // namespace tw
