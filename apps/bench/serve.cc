// `tilewright bench serve`: a server under load. Flags and names of figures are those of SGLang's
// bench_serving; the server is any with OpenAI's /v1/completions that takes `ignore_eos`.
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "apps/bench/bench_commands.h"
#include "apps/bench/load_client.h"
#include "apps/bench/load_data.h"
#include "apps/bench/load_figures.h"
#include "apps/commands.h"

namespace tw {
namespace {

struct ServeBenchOptions {
  std::string backend = "tilewright";
  std::string base_url;
  std::string model;
  std::string api_key;
  std::string dataset_name = "random";
  std::string dataset_path;
  RandomLoad random;
  int32_t sharegpt_output_len = 0;
  double request_rate = std::numeric_limits<double>::infinity();
  int32_t max_concurrency = 0;  // 0: no bound
  int32_t warmup_requests = 1;
  std::string extra_request_body = "{}";
  std::string output_file;
  std::string plot;
};

int default_port(const std::string& backend) {
  if (backend == "vllm") return 8000;
  return backend == "llama.cpp" ? 8080 : 30000;
}

Expected<std::vector<LoadRequest>> requests_of(const ServeBenchOptions& options) {
  if (options.dataset_name == "random") return random_requests(options.random);
  if (options.dataset_path.empty()) {
    return error(ErrorCode::invalid_argument, "--dataset-name sharegpt: needs --dataset-path FILE");
  }
  return sharegpt_requests(options.dataset_path, options.random.num_prompts,
                           options.sharegpt_output_len, options.random.seed);
}

// Requests that have arrived, for threads that send them.
class Arrivals {
 public:
  void push(size_t index) {
    {
      std::lock_guard lock(mutex_);
      indices_.push_back(index);
    }
    changed_.notify_one();
  }
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  std::optional<size_t> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !indices_.empty(); });
    if (indices_.empty()) return std::nullopt;
    const size_t index = indices_.front();
    indices_.pop_front();
    return index;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> indices_;
  bool closed_ = false;
};

// Requests arrive as a Poisson process and don't wait for answers, unless --max-concurrency holds
// them.
std::vector<LoadTiming> run(const LoadClient& client, const std::vector<LoadRequest>& requests,
                            const ServeBenchOptions& options) {
  std::vector<LoadTiming> timings(requests.size());
  Arrivals arrivals;
  const size_t num_senders =
      options.max_concurrency > 0
          ? std::min(requests.size(), static_cast<size_t>(options.max_concurrency))
          : requests.size();
  std::vector<std::thread> senders;
  for (size_t i = 0; i < num_senders; ++i) {
    senders.emplace_back([&] {
      while (const auto index = arrivals.pop()) timings[*index] = client.complete(requests[*index]);
    });
  }
  std::mt19937_64 random(options.random.seed);
  std::exponential_distribution gap(std::isfinite(options.request_rate) ? options.request_rate
                                                                        : 1.0);
  const double begin = client.now();
  double arrival = begin;
  for (size_t i = 0; i < requests.size(); ++i) {
    const double wait = arrival - client.now();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    arrivals.push(i);
    if (std::isfinite(options.request_rate)) arrival += gap(random);
  }
  arrivals.close();
  for (std::thread& sender : senders) sender.join();
  return timings;
}

Status write_file(const std::string& path, const std::string& text, std::ios::openmode mode) {
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  file.flush();
  if (!file) return error(ErrorCode::internal, "{}: cannot write", path);
  return {};
}

// The first problem, if requests failed.
Status check(const std::vector<LoadTiming>& timings, const std::string& base_url) {
  size_t failed = 0;
  const LoadTiming* first = nullptr;
  for (const LoadTiming& timing : timings) {
    if (timing.problem.empty()) continue;
    ++failed;
    if (first == nullptr) first = &timing;
  }
  if (failed == 0) return {};
  return error(ErrorCode::unavailable, "{}: {} of {} requests failed: {}", base_url, failed,
               timings.size(), first->problem);
}

Status bench_serve(const ServeBenchOptions& options) {
  const std::string base_url =
      options.base_url.empty() ? fmt::format("http://127.0.0.1:{}", default_port(options.backend))
                               : options.base_url;
  auto extra = parse_json(options.extra_request_body, "--extra-request-body");
  if (!extra) return forward_error(extra);
  if (!extra->is_object()) {
    return error(ErrorCode::invalid_argument, "--extra-request-body {}: must be a JSON object",
                 options.extra_request_body);
  }
  auto requests = requests_of(options);
  if (!requests) return forward_error(requests);
  LoadClient client(base_url, options.api_key, *extra);
  client.set_model(options.model);
  if (options.model.empty()) {
    auto model = client.served_model();
    if (!model) return forward_error(model);
    client.set_model(*model);
  }
  // Prompts of their own: the measured ones must not be in the server's prefix cache.
  for (const LoadRequest& request : random_requests({.num_prompts = options.warmup_requests,
                                    .input_len = 32,
                                    .output_len = 8,
                                    .seed = options.random.seed + 1})) {
    client.complete(request);
  }
  const double begin = client.now();
  const std::vector<LoadTiming> timings = run(client, *requests, options);
  const double duration = client.now() - begin;
  const bool has_rate = std::isfinite(options.request_rate);
  Json result = {
      {"backend", options.backend},
      {"model", client.model()},
      {"dataset_name", options.dataset_name},
      {"num_prompts", requests->size()},
      {"request_rate", has_rate ? Json(options.request_rate) : Json("inf")},
      {"max_concurrency", options.max_concurrency > 0 ? Json(options.max_concurrency) : Json()}};
  result.update(load_figures(timings, duration));
  std::printf("%s", load_table(result).c_str());
  if (!options.output_file.empty()) {
    Status status = write_file(options.output_file, dump_json(result) + "\n", std::ios::app);
    if (!status) return status;
  }
  if (!options.plot.empty()) {
    const std::string title =
        fmt::format("{}: {} requests, {:.1f} output tokens/s", client.model(), requests->size(),
                    result["output_throughput"].get<double>());
    Status status = write_file(options.plot, load_plot(timings, title), std::ios::trunc);
    if (!status) return status;
  }
  return check(timings, base_url);
}

void add_options(CLI::App& command, ServeBenchOptions& options) {
  const auto option = [&](const char* flags, auto& value, const char* help) {
    return command.add_option(flags, value, help)->capture_default_str();
  };
  constexpr auto kMost = std::numeric_limits<int32_t>::max();
  option("--backend", options.backend, "Sets the default port")
      ->check(CLI::IsMember({"tilewright", "sglang", "vllm", "llama.cpp"}));
  option("--base-url", options.base_url,
         "http://HOST:PORT (default: this machine, the backend's port)");
  option("--model", options.model, "Name in requests (default: the first of /v1/models)");
  option("--api-key", options.api_key, "Key to send as Authorization: Bearer KEY");
  option("--dataset-name", options.dataset_name, "random token ids, or sharegpt")
      ->check(CLI::IsMember({"random", "sharegpt"}));
  option("--dataset-path", options.dataset_path, "File of --dataset-name sharegpt");
  option("--num-prompts", options.random.num_prompts, "Requests")->check(CLI::Range(1, 1 << 20));
  option("--random-input-len", options.random.input_len, "Longest random prompt, in tokens")
      ->check(CLI::Range(1, kMost));
  option("--random-output-len", options.random.output_len, "Longest answer to it, in tokens")
      ->check(CLI::Range(1, kMost));
  option("--random-range-ratio", options.random.range_ratio,
         "Shortest length as a share of the longest (1: all are equal)")
      ->check(CLI::Range(0.0, 1.0));
  option("--sharegpt-output-len", options.sharegpt_output_len,
         "Tokens of each answer (0: as many as the recorded one has)")
      ->check(CLI::Range(0, kMost));
  option("--request-rate", options.request_rate,
         "Requests per second, arriving as a Poisson process (inf: all at once)")
      ->check(CLI::PositiveNumber);
  option("--max-concurrency", options.max_concurrency, "Requests under way at once (0: all)")
      ->check(CLI::Range(0, 1 << 16));
  option("--warmup-requests", options.warmup_requests, "Requests before, which are not measured")
      ->check(CLI::Range(0, 1 << 16));
  option("--extra-request-body", options.extra_request_body, "Fields for every request, as JSON");
  option("--seed", options.random.seed, "Of prompts, lengths and arrivals");
  option("--output-file", options.output_file,
         "Append the figures to this file, as a line of JSON");
  option("--plot", options.plot, "Draw the distributions into this file, as SVG");
}

}  // namespace

void add_bench_serve_command(CLI::App& bench, int& exit_code) {
  auto* command = bench.add_subcommand("serve", "Measure a server under load");
  auto options = std::make_shared<ServeBenchOptions>();
  add_options(*command, *options);
  command->callback([options, &exit_code] {
    if (Status status = bench_serve(*options); !status) exit_code = report(status.error());
  });
}

}  // namespace tw
