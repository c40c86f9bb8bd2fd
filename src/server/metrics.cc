#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>

namespace tw {
namespace {

using Labels = std::map<std::string, std::string>;
using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kFirstTokenBuckets = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,  2,
                                    4,    8,     16,   32,  64,   128, 256};
const Buckets kInterTokenBuckets = {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
                                    0.05,  0.075,  0.1,   0.15,   0.25, 0.5,   1,    2.5};
const Buckets kRequestBuckets = {0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
const Buckets kTokenBuckets = {1, 8, 32, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072};

}  // namespace

struct Metrics::Families {
  Families(const Labels& model_labels, std::vector<RankLimits> rank_limits)
      : labels(model_labels), limits(std::move(rank_limits)) {
    for (size_t rank = 0; rank < limits.size(); ++rank) {
      bandwidth_limit.Add(of_rank(rank)).Set(limits[rank].limits.read_bandwidth);
      operations_limit.Add(of_rank(rank)).Set(limits[rank].limits.operations());
    }
  }

  // Labels of a rank: with the memory node that it lies on, where that is known.
  Labels of_rank(size_t rank) const {
    Labels of = {{"rank", std::to_string(rank)}};
    if (rank < limits.size() && limits[rank].node >= 0) {
      of["node"] = std::to_string(limits[rank].node);
    }
    return of;
  }

  prometheus::Family<prometheus::Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  prometheus::Family<prometheus::Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry);
  }
  prometheus::Counter& counter(const char* name, const char* help) {
    return counters(name, help).Add({});
  }
  prometheus::Gauge& gauge(const char* name, const char* help) {
    return gauges(name, help).Add({});
  }
  prometheus::Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry).Add(
        {}, buckets);
  }

  const Labels labels;
  const std::vector<RankLimits> limits;
  prometheus::Registry registry;

  prometheus::Family<prometheus::Counter>& memory_bytes =
      counters("tilewright_memory_bytes_total",
               "Bytes that the model's steps moved from and to memory, at the least");
  prometheus::Family<prometheus::Counter>& operations =
      counters("tilewright_operations_total", "Multiplications and additions of the model's steps");
  prometheus::Family<prometheus::Gauge>& bandwidth_limit =
      gauges("tilewright_memory_bandwidth_limit_bytes",
             "Bytes per second that the rank's threads can read, measured at start");
  prometheus::Family<prometheus::Gauge>& operations_limit =
      gauges("tilewright_operations_limit",
             "Operations per second of the fastest instruction, measured at start");

  prometheus::Family<prometheus::Counter>& http_requests =
      counters("tilewright_http_requests_total", "Answered HTTP requests by endpoint and status");
  prometheus::Gauge& connections = gauge("tilewright_http_connections", "Open HTTP connections");

  prometheus::Histogram& first_token =
      histogram("tilewright_time_to_first_token_seconds",
                "From the arrival of a generation to its first token", kFirstTokenBuckets);
  prometheus::Histogram& inter_token =
      histogram("tilewright_inter_token_latency_seconds", "Between two tokens of a generation",
                kInterTokenBuckets);
  prometheus::Histogram& request_latency =
      histogram("tilewright_e2e_request_latency_seconds",
                "From the arrival of a generation to its end", kRequestBuckets);
  prometheus::Histogram& prompt_length =
      histogram("tilewright_request_prompt_tokens", "Prompt tokens per generation", kTokenBuckets);
  prometheus::Histogram& output_length = histogram("tilewright_request_generation_tokens",
                                                   "Output tokens per generation", kTokenBuckets);

  prometheus::Counter& requests =
      counter("tilewright_requests_total", "Generations given to the engine");
  prometheus::Counter& finished =
      counter("tilewright_requests_finished_total", "Generations that ended by themselves");
  prometheus::Counter& aborted = counter("tilewright_requests_aborted_total",
                                         "Generations ended early: cancelled, or by a stop string");
  prometheus::Counter& preemptions =
      counter("tilewright_preemptions_total", "Generations put back for want of KV pages");
  prometheus::Counter& prompt_tokens =
      counter("tilewright_prompt_tokens_total", "Prompt tokens of generations that began output");
  prometheus::Counter& cached_tokens = counter(
      "tilewright_cached_tokens_total", "Prompt tokens of ended generations found in the cache");
  prometheus::Counter& generation_tokens =
      counter("tilewright_generation_tokens_total", "Tokens generated");
  prometheus::Counter& draft_tokens =
      counter("tilewright_draft_tokens_total", "Guessed tokens that were verified");
  prometheus::Counter& accepted_draft_tokens =
      counter("tilewright_accepted_draft_tokens_total", "Guessed tokens that were right");
  prometheus::Counter& expert_moves = counter(
      "tilewright_expert_moves_total", "Layers whose experts were moved to balance the ranks");
  prometheus::Counter& forward_seconds =
      counter("tilewright_forward_seconds_total", "Seconds that the model computed");
  prometheus::Counter& steps = counter("tilewright_engine_steps_total", "Steps of the model");

  prometheus::Counter& masks =
      counter("tilewright_grammar_masks_total", "Token masks computed for grammars");
  prometheus::Counter& mask_seconds =
      counter("tilewright_grammar_mask_seconds_total", "Seconds that threads computed masks");
  prometheus::Counter& mask_wait_seconds =
      counter("tilewright_grammar_wait_seconds_total", "Seconds that the engine waited for masks");

  prometheus::Gauge& running =
      gauge("tilewright_num_requests_running", "Generations in the running batch");
  prometheus::Gauge& queued =
      gauge("tilewright_num_requests_queued", "Generations waiting to be admitted");
  prometheus::Gauge& kv_capacity =
      gauge("tilewright_kv_tokens_capacity", "Tokens that the KV cache can hold");
  prometheus::Gauge& kv_used =
      gauge("tilewright_kv_tokens_used", "Tokens in the KV cache: running and kept for prefixes");
  prometheus::Gauge& kv_evictable =
      gauge("tilewright_kv_tokens_evictable", "Tokens kept for prefixes alone");
  prometheus::Gauge& cache_hit_rate = gauge(
      "tilewright_cache_hit_rate", "Cached share of all prompt tokens since the start, 0 to 1");
  prometheus::Gauge& expert_imbalance =
      gauge("tilewright_expert_imbalance",
            "Choices of experts that the busiest group of ranks computes, by the mean of all");
  prometheus::Gauge& last_step =
      gauge("tilewright_last_step_seconds", "Duration of the engine's last step");

  // Serializes the scrapes: each adds what the engine counted since the one before.
  std::mutex scrape_mutex;
};

Metrics::Metrics(const std::string& model_name, std::vector<RankLimits> limits)
    : families_(std::make_unique<Families>(Labels{{"model_name", model_name}}, std::move(limits))) {
}

Metrics::~Metrics() = default;

void Metrics::count_http_request(std::string_view endpoint, int status) {
  families_->http_requests
      .Add({{"endpoint", std::string(endpoint)}, {"status", std::to_string(status)}})
      .Increment();
}

void Metrics::set_connections(int count) {
  families_->connections.Set(count);
}

void Metrics::observe_time_to_first_token(double seconds) {
  families_->first_token.Observe(seconds);
}

void Metrics::observe_inter_token_latency(double seconds) {
  families_->inter_token.Observe(seconds);
}

void Metrics::observe_request(double seconds, int num_prompt_tokens, int num_output_tokens) {
  families_->request_latency.Observe(seconds);
  families_->prompt_length.Observe(num_prompt_tokens);
  families_->output_length.Observe(num_output_tokens);
}

std::string Metrics::render(const EngineStats& stats, const MaskCosts& masks) {
  Families& families = *families_;
  std::lock_guard lock(families.scrape_mutex);
  const auto raise = [](prometheus::Counter& counter, auto total) {
    counter.Increment(std::max(0.0, static_cast<double>(total) - counter.Value()));
  };
  raise(families.requests, stats.num_requests_total);
  raise(families.finished, stats.num_requests_finished);
  raise(families.aborted, stats.num_requests_aborted);
  raise(families.preemptions, stats.num_preemptions);
  raise(families.prompt_tokens, stats.prompt_tokens_total);
  raise(families.cached_tokens, stats.cached_tokens_total);
  raise(families.generation_tokens, stats.generation_tokens_total);
  raise(families.draft_tokens, stats.draft_tokens_total);
  raise(families.accepted_draft_tokens, stats.accepted_draft_tokens_total);
  raise(families.expert_moves, stats.expert_moves_total);
  raise(families.steps, stats.num_steps);
  raise(families.forward_seconds, stats.forward_seconds_total);
  for (size_t rank = 0; rank < stats.rank_costs.size(); ++rank) {
    const Labels of_rank = families.of_rank(rank);
    raise(families.memory_bytes.Add(of_rank), stats.rank_costs[rank].bytes);
    raise(families.operations.Add(of_rank), stats.rank_costs[rank].operations);
  }
  raise(families.masks, masks.num_masks);
  raise(families.mask_seconds, masks.compute_seconds);
  raise(families.mask_wait_seconds, masks.wait_seconds);
  families.running.Set(stats.num_running);
  families.queued.Set(stats.num_queued);
  families.kv_capacity.Set(static_cast<double>(stats.kv_tokens_capacity));
  families.kv_used.Set(static_cast<double>(stats.kv_tokens_used));
  families.kv_evictable.Set(static_cast<double>(stats.kv_tokens_evictable));
  families.cache_hit_rate.Set(stats.prompt_tokens_total > 0
                                  ? static_cast<double>(stats.cached_tokens_total) /
                                        static_cast<double>(stats.prompt_tokens_total)
                                  : 0);
  families.expert_imbalance.Set(stats.expert_imbalance);
  families.last_step.Set(stats.last_step_seconds);
  return prometheus::TextSerializer().Serialize(families.registry.Collect());
}

}  // namespace tw
