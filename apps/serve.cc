// `tilewright serve`: the OpenAI-compatible server.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "apps/commands.h"
#include "apps/model_session.h"
#include "apps/pooling_choice.h"
#include "core/log.h"
#include "hub/model_id.h"
#include "server/http_server.h"

namespace tw {
namespace {

struct ServeOptions {
  ModelOptions model;
  ServerConfig server;
  std::string served_model_name;
  std::string tool_call_parser;
  std::string reasoning_parser;
  std::string pooling = "auto";
  double drain_seconds = 30;

  void add_to(CLI::App& command);
};

void ServeOptions::add_to(CLI::App& command) {
  model.add_to(command);
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
  option("--served-model-name", served_model_name,
         "Name in /v1/models (default: the hub's name, or the name of the model's file or folder)");
  option("--tool-call-parser", tool_call_parser,
         "Format in which the model writes tool calls: " + tool_format_names());
  option("--reasoning-parser", reasoning_parser,
         "Format of the model's reasoning, which then comes as reasoning_content: " +
             reasoning_format_names());
  option("--pooling", pooling,
         "Which hidden states /v1/embeddings answers: " + pooling_names() +
             "; auto: as the folder's 1_Pooling/config.json says, else last");
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

std::string default_name(const std::string& model_path) {
  std::filesystem::path path(model_path);
  std::error_code ignored;
  if (parse_model_id(model_path) && !std::filesystem::exists(path, ignored)) return model_path;
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  return path.extension() == ".gguf" ? path.stem().string() : name;
}

// Each connection is a file descriptor, and the soft limit is often 1024.
void raise_descriptor_limit(ServerConfig& config) {
  constexpr rlim_t kOthers = 64;  // weights, log, engine ...
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(config.max_connections) + kOthers;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(limit.rlim_max, wanted);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= wanted) return;
  config.max_connections =
      static_cast<int>(std::max<rlim_t>(limit.rlim_cur, kOthers + 1) - kOthers);
  log::warn("--max-connections lowered to {}: the limit of open files (ulimit -n) is {}",
            config.max_connections, limit.rlim_cur);
}

std::string curl_example(const std::string& url, const ServeOptions& options, bool chat) {
  const std::string key = options.server.api_key.empty() ? "" : " -H 'Authorization: Bearer KEY'";
  const char* path = chat ? "chat/completions" : "completions";
  const char* body = chat ? R"({"messages": [{"role": "user", "content": "Hello!"}]})"
                          : R"({"prompt": "Once upon a time"})";
  return fmt::format("curl {}/v1/{}{} -H 'Content-Type: application/json' -d '{}'", url, path, key,
                     body);
}

template <typename Format>
Expected<const Format*> find_format(const char* flag, const std::string& name,
                                    const Format* (*find)(std::string_view),
                                    const std::string& known) {
  if (name.empty()) return nullptr;
  if (const Format* format = find(name)) return format;
  return error(ErrorCode::invalid_argument, "{} {}: unknown; there are {}", flag, name, known);
}

Status serve(ServeOptions options) {
  const auto tool_format = find_format("--tool-call-parser", options.tool_call_parser,
                                       find_tool_format, tool_format_names());
  if (!tool_format) return tl::unexpected(tool_format.error());
  const auto reasoning_format = find_format("--reasoning-parser", options.reasoning_parser,
                                            find_reasoning_format, reasoning_format_names());
  if (!reasoning_format) return tl::unexpected(reasoning_format.error());
  auto address = BoundAddress::bind(options.server.host, options.server.port);
  if (!address) return forward_error(address);
  auto session = ModelSession::open(options.model);
  if (!session) return forward_error(session);
  const auto pooling = choose_pooling(options.pooling, *session->checkpoint);
  if (!pooling) return tl::unexpected(pooling.error());
  const std::string name = options.served_model_name.empty()
                               ? default_name(options.model.model_path)
                               : options.served_model_name;
  options.server.drain_timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.drain_seconds * 1e3));
  raise_descriptor_limit(options.server);
  const bool chat = session->chat_template.has_value();
  ServedModel model{.name = name,
                    .path = options.model.model_path,
                    .tokenizer = *session->tokenizer,
                    .chat_template = chat ? &*session->chat_template : nullptr,
                    .chat_template_problem = session->chat_template_problem,
                    .generation_config = session->checkpoint->generation_config(),
                    .architecture = session->checkpoint->config().value("model_type", ""),
                    .tool_format = *tool_format,
                    .reasoning_format = *reasoning_format,
                    .pooling = *pooling};
  Service service(options.server, std::move(model), *session->engine);
  auto server = HttpServer::create(service, std::move(*address));
  if (!server) return forward_error(server);
  (*server)->stop_on_signals();
  const bool ipv6 = options.server.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + options.server.host + "]" : options.server.host;
  const std::string url = fmt::format("http://{}:{}", host, (*server)->port());
  log::info("serving {} on {} (OpenAI API at {}/v1)", name, url, url);
  log::info("try: {}", curl_example(url, options, chat));
  log::info("stop with Ctrl-C");
  (*server)->run();
  log::info("stopped");
  return {};
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("serve", "Serve a model over HTTP (OpenAI and SGLang APIs)");
  auto options = std::make_shared<ServeOptions>();
  options->add_to(*command);
  command->callback([options, &exit_code] {
    if (Status status = configure_log(options->model.log); !status) {
      exit_code = report(status.error());
    } else if (status = serve(*options); !status) {
      exit_code = report(status.error());
    }
  });
}

}  // namespace tw
