// What the endpoints share: the served model, its engine, the settings, metrics and worker threads.
//
// Threads: endpoints run as coroutines on I/O threads, which must not be held up. What may take
// long (parsing large bodies, templates, tokenizing) goes to a small worker pool; the engine has
// its own thread.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "engine/engine.h"
#include "http/api_error.h"
#include "http/application.h"
#include "http/identifiers.h"
#include "http/responder.h"
#include "server/adapters.h"
#include "server/generation_options.h"
#include "server/grammars.h"
#include "server/metrics.h"
#include "text/chat_template.h"
#include "text/reasoning_parser.h"
#include "text/tokenizer.h"
#include "text/tool_parsers/tool_parser.h"

namespace tw {

struct ServerConfig : HttpConfig {
  bool log_requests = false;  // bodies too, which hold the prompts
  std::string profile_dir;    // where /stop_profile writes traces; empty: no profiles
  int worker_threads = 2;
  double watchdog_seconds = 300;  // without progress of the engine: /health answers 503
  // Tokens that a stream may be behind the engine before it is cancelled.
  size_t max_stream_backlog = 16384;
};

// The model as the server sees it. The references outlive the service.
struct ServedModel {
  std::string name;  // in /v1/models; requests may also say `path` or "default"
  std::string path;
  const Tokenizer& tokenizer;
  const ChatTemplate* chat_template = nullptr;
  std::string chat_template_problem;  // why there is none
  Json generation_config = Json::object();
  std::string architecture;
  const ToolFormat* tool_format = nullptr;            // null: calls stay in the text
  const ReasoningFormat* reasoning_format = nullptr;  // null: reasoning stays in the text
  Pooling pooling = Pooling::last;                    // of embeddings
  std::vector<RankLimits> limits = {};                // of each rank; empty: not measured
};

class Service final : public Application {
 public:
  Service(ServerConfig config, ServedModel model, Engine& engine);

  // Application
  const HttpConfig& http_config() const override { return config_; }
  asio::awaitable<Answered> answer(HttpRequest& request, Responder& responder) override;
  void count_request(std::string_view endpoint, int status) override {
    metrics_.count_http_request(endpoint, status);
  }
  void set_connections(int count) override { metrics_.set_connections(count); }
  void abort_all() override { engine_.abort_all(); }
  // The engine ends, and the workers after what they are doing.
  void shutdown() override;

  const ServerConfig& config() const { return config_; }
  const ServedModel& model() const { return model_; }
  const RequestDefaults& defaults() const { return defaults_; }
  Engine& engine() { return engine_; }
  Metrics& metrics() { return metrics_; }
  Grammars& grammars() { return grammars_; }
  Adapters& adapters() { return adapters_; }
  int64_t created() const { return created_; }  // Unix time of the start

  // The adapter that a request's `model` ("<model>:<adapter>", or the adapter's name alone) or its
  // `lora_path` names; null where they name none. A model or an adapter that is not there is 404,
  // with code model_not_found.
  using AdapterPtr = std::shared_ptr<const LoraAdapter>;
  ApiExpected<AdapterPtr> find_model(const std::string& model,
                                     const std::string& lora_path = {}) const;

  // Text to ids; refuses what cannot fit into the context, before the work where that is certain.
  ApiExpected<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens,
                                           const std::string& field) const;
  // The same for ids that the client made.
  ApiExpected<std::vector<TokenId>> check_prompt(std::vector<TokenId> ids,
                                                 const std::string& field) const;
  ApiExpected<std::vector<TokenId>> encode(const PromptInput& prompt,
                                           const std::string& field) const;

  // A new id: "chatcmpl-" and 24 random hex digits.
  std::string make_id(std::string_view prefix) { return identifiers_.make(prefix); }

  // Clients' own request ids, for /abort_request. Several requests may share one.
  void register_request(const std::string& rid, uint64_t engine_id);
  void forget_request(const std::string& rid, uint64_t engine_id);
  void abort_request(const std::string& rid);

  // Runs `work` on a worker thread; the caller's coroutine goes on, on its own executor, with the
  // result. `work` must not throw.
  template <typename Work>
  asio::awaitable<std::invoke_result_t<Work>> on_worker(Work work) {
    auto task = run(std::move(work));
    co_return co_await asio::co_spawn(workers_, std::move(task), asio::use_awaitable);
  }

 private:
  template <typename Work>
  static asio::awaitable<std::invoke_result_t<Work>> run(Work work) {
    co_return work();
  }

  const ServerConfig config_;
  const ServedModel model_;
  Engine& engine_;
  const RequestDefaults defaults_;
  const int64_t created_;
  const size_t max_prompt_bytes_;
  Metrics metrics_;
  Grammars grammars_;
  Adapters adapters_;
  Identifiers identifiers_;
  std::mutex requests_mutex_;
  std::multimap<std::string, uint64_t> requests_;
  asio::thread_pool workers_;
};

}  // namespace tw
