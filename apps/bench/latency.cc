// `tilewright bench latency`: speed of the model alone, without server, scheduler and sampling.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "apps/bench/bench_commands.h"
#include "apps/commands.h"
#include "apps/model_session.h"
#include "core/chrome_trace.h"
#include "core/log.h"
#include "core/memory.h"
#include "engine/profile.h"

namespace tw {
namespace {

struct BenchOptions {
  ModelOptions model;
  int32_t prompt_tokens = 512;
  int32_t output_tokens = 128;
  int32_t batch_size = 1;
  int32_t repetitions = 5;
  bool json = false;
  bool steps = false;
  std::string profile;
};

// Sequences of the same length in consecutive pages: the batch of a synthetic load.
class SyntheticLoad {
 public:
  SyntheticLoad(int32_t num_seqs, int32_t max_len, int32_t page_size, int64_t vocab_size)
      : num_seqs_(num_seqs),
        page_size_(page_size),
        pages_per_seq_((max_len + page_size - 1) / page_size),
        vocab_size_(vocab_size) {}

  int64_t num_pages() const { return int64_t{num_seqs_} * pages_per_seq_; }

  // The next `count` tokens of every sequence, whose caches hold `length` tokens.
  Batch next(int32_t length, int32_t count) {
    tokens_.clear(), positions_.clear(), slots_.clear(), starts_.assign(1, 0);
    lens_.clear(), tables_.clear(), table_starts_.assign(1, 0), logits_.clear();
    for (int32_t seq = 0; seq < num_seqs_; ++seq) {
      const int32_t first_page = seq * pages_per_seq_;
      for (int32_t position = length; position < length + count; ++position) {
        tokens_.push_back(static_cast<int32_t>((position * 7919L + seq * 104729L) % vocab_size_));
        positions_.push_back(position);
        slots_.push_back(first_page * page_size_ + position);
      }
      for (int32_t page = 0; page < pages_per_seq_; ++page) tables_.push_back(first_page + page);
      table_starts_.push_back(static_cast<int32_t>(tables_.size()));
      starts_.push_back(static_cast<int32_t>(tokens_.size()));
      lens_.push_back(length + count);
      logits_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    }
    return {tokens_, positions_, starts_, lens_, slots_, tables_, table_starts_, logits_};
  }

 private:
  int32_t num_seqs_;
  int32_t page_size_;
  int32_t pages_per_seq_;
  int64_t vocab_size_;
  std::vector<int32_t> tokens_, positions_, starts_, lens_, slots_, tables_, table_starts_, logits_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Runs steps of at most `chunk` tokens per sequence and returns tokens per second.
double run_tokens(Model& model, SyntheticLoad& load, int32_t num_seqs, int32_t tokens,
                  int32_t chunk) {
  const auto begin = std::chrono::steady_clock::now();
  for (int32_t done = 0; done < tokens;) {
    const int32_t count = std::min(chunk, tokens - done);
    model.forward(load.next(done, count));
    done += count;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return int64_t{num_seqs} * tokens / seconds.count();
}

Status write_profile(const StepTrace& trace, const std::string& path) {
  auto writer = ChromeTraceWriter::create(path);
  if (!writer) return forward_error(writer);
  write_step_events(trace, *writer);
  return writer->close();
}

Status bench(const BenchOptions& options) {
  const int32_t max_len = std::max(options.prompt_tokens, options.output_tokens) + 1;
  auto session = ModelSession::load(options.model);
  if (!session) return forward_error(session);
  Model& model = *session->model;
  if (max_len > model.limits().max_position_embeddings) {
    return error(ErrorCode::invalid_argument, "{} tokens exceed the model's context of {}", max_len,
                 model.limits().max_position_embeddings);
  }
  const int32_t page_size = options.model.engine.page_size;
  const int32_t chunk = std::max(1, options.model.engine.chunked_prefill_size / options.batch_size);
  SyntheticLoad load(options.batch_size, max_len, page_size, model.limits().vocab_size);
  if (Status status = model.prepare(load.num_pages(), page_size, chunk * options.batch_size,
                                    options.batch_size);
      !status) {
    return status;
  }
  std::optional<StepTrace> trace;
  if (options.steps || !options.profile.empty()) {
    const int threads = model.num_threads();
    trace.emplace(threads, options.profile.empty() ? 0 : kMaxProfileEvents / threads);
    model.set_trace(&*trace);
  }

  std::vector<double> prefill, decode;
  for (int32_t i = 0; i < options.repetitions; ++i) {
    if (options.prompt_tokens > 0) {
      prefill.push_back(run_tokens(model, load, options.batch_size, options.prompt_tokens, chunk));
    }
    if (options.output_tokens > 0) {
      decode.push_back(run_tokens(model, load, options.batch_size, options.output_tokens, 1));
    }
  }
  if (options.json) {
    const Json result = {{"model", options.model.model_path},
                         {"threads", session->teams->num_threads()},
                         {"isa", to_string(session->features.isa())},
                         {"batch_size", options.batch_size},
                         {"prompt_tokens", options.prompt_tokens},
                         {"output_tokens", options.output_tokens},
                         {"prefill_tokens_per_second", median(prefill)},
                         {"decode_tokens_per_second", median(decode)},
                         {"resident_bytes", resident_memory()}};
    std::printf("%s\n", dump_json(result).c_str());
  } else {
    std::printf(
        "batch %d, %d threads: prefill %d tokens %.1f tokens/s, decode %d tokens %.1f "
        "tokens/s\n",
        options.batch_size, session->teams->num_threads(), options.prompt_tokens, median(prefill),
        options.output_tokens, median(decode));
  }
  if (options.steps) std::printf("%s", step_table(*trace).c_str());
  return options.profile.empty() ? Status() : write_profile(*trace, options.profile);
}

}  // namespace

void add_bench_latency_command(CLI::App& bench_command, int& exit_code) {
  auto* command = bench_command.add_subcommand(
      "latency", "Measure prefill and decode of a model, nothing around it");
  auto options = std::make_shared<BenchOptions>();
  options->model.log.level = "warning";
  options->model.add_to(*command);
  command->add_option("--prompt-tokens", options->prompt_tokens, "Tokens to prefill")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--output-tokens", options->output_tokens, "Tokens to decode one by one")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--batch-size", options->batch_size, "Sequences side by side")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--repetitions,-r", options->repetitions, "Runs; the median is printed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object instead of a line of text");
  command->add_flag("--steps", options->steps, "Also a table of the plan's steps");
  command->add_option("--profile", options->profile,
                      "Write a trace of every step and thread to this file (open it in Perfetto)");
  command->callback([options, &exit_code] {
    if (Status status = configure_log(options->model.log); !status) {
      exit_code = report(status.error());
    } else if (status = bench(*options); !status) {
      exit_code = report(status.error());
    }
  });
}

}  // namespace tw
