// How near does attention come to the machine's limits?
//
// Prefill: one prompt, against the rate of fp32 FMAs. Decode: one token of each of some sequences
// over contexts that come from memory, against the read bandwidth. As in a model, one step passes
// over several layers with a cache of their own each.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/check.h"
#include "core/json.h"
#include "core/machine_limits.h"
#include "core/measure.h"
#include "kernels/attention/attention.h"

namespace tw::bench {
namespace {

using namespace tw::kernels;

struct Options {
  bool json = false;
  int threads = usable_cpu_count();
  std::string filter;  // part of a kernel's name
  double seconds = 0.5;
  int heads = 32;
  int kv_heads = 8;
  int head_dim = 64;
  int page_size = 16;
  std::vector<int> prefill = {512, 1024, 4096};
  std::vector<int> decode = {1024, 4096, 16384, 65536, 131072};
  std::vector<int> decode_seqs = {1, 32};
  size_t megabytes = 1024;  // of cache that decode streams, in all layers
  bool scalar = false;
  std::string kv_cache_dtype = "bf16";

  KvType kv_type() const { return kv_cache_dtype == "bf16" ? KvType::bf16 : KvType::fp8_e4m3; }
};

// A step: `seqs` sequences, each with `new_tokens` tokens that end a context of `context` tokens,
// over pages in random order.
struct Problem {
  AttentionShape shape;
  int64_t context = 0;
  int num_layers = 1;
  std::vector<int32_t> positions;
  std::vector<int32_t> seq_starts = {0};
  std::vector<int32_t> page_tables;
  std::vector<int32_t> page_table_starts = {0};
  Buffer keys;
  Buffer values;
  int64_t keys_per_layer = 0;
  int64_t values_per_layer = 0;
  std::vector<float> q;
  std::vector<float> out;

  int64_t row_size() const { return int64_t{shape.num_heads} * shape.layout.head_dim; }
  AttentionBatch batch() const { return {positions, seq_starts, page_tables, page_table_starts}; }
  // Multiplications and additions of one layer: q k^T and p v, over the keys that are visible.
  double operations() const {
    double visible = 0;
    for (const int32_t position : positions) visible += position + 1;
    return 4.0 * visible * static_cast<double>(row_size());
  }
  double bytes() const {
    const double tokens = static_cast<double>(context) * batch().num_seqs();
    return tokens * static_cast<double>(shape.layout.bytes_per_token());
  }
};

template <typename Element, typename Round>
Buffer random_elements(int64_t count, std::mt19937& random, Round round) {
  auto buffer = Buffer::allocate(static_cast<size_t>(count) * sizeof(Element));
  TW_CHECK(buffer.has_value());
  std::vector<Element> noise(1 << 16);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (Element& value : noise) value = round(uniform(random));
  for (int64_t i = 0; i < count; ++i) {
    buffer->as<Element>()[i] = noise[static_cast<size_t>(i) % noise.size()];
  }
  return std::move(*buffer);
}

Buffer random_cache(KvType type, int64_t elements, std::mt19937& random) {
  if (type == KvType::fp8_e4m3) {
    return random_elements<f8_e4m3_t>(elements, random, to_f8_e4m3);
  }
  return random_elements<bf16_t>(elements, random, to_bf16);
}

Problem make_problem(const Options& options, int seqs, int new_tokens, int context,
                     size_t megabytes) {
  std::mt19937 random(1);
  Problem p;
  p.shape.num_heads = options.heads;
  const int pages = (context + options.page_size - 1) / options.page_size;
  p.shape.layout = {options.kv_heads, options.head_dim, options.page_size, int64_t{seqs} * pages,
                    options.kv_type()};
  p.shape.scale = 1.0f / std::sqrt(static_cast<float>(options.head_dim));
  const Status valid = p.shape.validate();
  if (!valid) {
    fmt::print(stderr, "{}\n", valid.error().message);
    std::exit(2);
  }
  p.context = context;
  p.page_tables.resize(static_cast<size_t>(seqs * pages));
  std::iota(p.page_tables.begin(), p.page_tables.end(), 0);
  std::shuffle(p.page_tables.begin(), p.page_tables.end(), random);
  for (int seq = 0; seq < seqs; ++seq) {
    for (int i = context - new_tokens; i < context; ++i) p.positions.push_back(i);
    p.seq_starts.push_back(static_cast<int32_t>(p.positions.size()));
    p.page_table_starts.push_back((seq + 1) * pages);
  }
  p.num_layers =
      std::clamp(static_cast<int>(static_cast<double>(megabytes << 20) / p.bytes()), 1, 32);
  p.keys_per_layer = p.shape.layout.num_pages * p.shape.layout.key_page_size();
  p.values_per_layer = p.shape.layout.num_pages * p.shape.layout.value_page_size();
  const KvType type = options.kv_type();
  p.keys = random_cache(type, p.keys_per_layer * p.num_layers, random);
  p.values = random_cache(type, p.values_per_layer * p.num_layers, random);
  p.q.resize(p.positions.size() * static_cast<size_t>(p.row_size()));
  p.out.resize(p.q.size());
  std::normal_distribution<float> normal;
  for (float& value : p.q) value = normal(random);
  return p;
}

// Seconds per layer, the plan's making included.
Timing time_attention(const AttentionKernels& kernels, Problem& p, ThreadTeam& team,
                      double seconds) {
  AttentionLimits limits;
  limits.max_num_tokens = static_cast<int32_t>(p.positions.size());
  limits.max_num_seqs = p.batch().num_seqs();
  limits.max_context_len = p.context;
  limits.num_threads = team.size();
  std::vector<std::byte> memory(attention_plan_size(p.shape.work(), limits));
  AttentionPlan plan = layout_attention_plan(p.shape.work(), limits, memory.data());
  std::vector<float> partials(attention_partials_size(p.shape.work(), limits) / sizeof(float));
  const auto num_tokens = static_cast<int64_t>(p.positions.size());

  Timing timing = measure(seconds, 3, [&] {
    build_attention_plan(p.shape.work(), p.batch(), plan);
    team.run([&](const TeamMember& member) {
      AttentionArguments a;
      a.shape = p.shape;
      a.batch = p.batch();
      a.plan = &plan;
      a.q = dense_matrix<const float>(p.q.data(), num_tokens, p.row_size());
      a.out = dense_matrix(p.out.data(), num_tokens, p.row_size());
      a.partials = partials.data();
      for (int layer = 0; layer < p.num_layers; ++layer) {
        a.keys = p.keys.data() + layer * p.keys_per_layer * element_size(p.shape.layout.type);
        a.values = p.values.data() + layer * p.values_per_layer * element_size(p.shape.layout.type);
        kernels.attend(a, plan.items_of(member.rank()));
        member.barrier();
        kernels.merge(a, member.share(num_tokens));
        member.barrier();
      }
    });
  });
  timing.median /= p.num_layers;
  timing.best /= p.num_layers;
  return timing;
}

double fma_limit(Isa isa, const MachineLimits& limits) {
  return isa == Isa::avx512 ? limits.fma_avx512 : isa == Isa::avx2 ? limits.fma_avx2 : 0;
}

void run(const Options& options) {
  const CpuFeatures features = detect_cpu_features();
  ThreadTeam team(options.threads);
  const MachineLimits limits = measure_machine(team, features, {.seconds_each = options.seconds});
  Json results = Json::array();
  if (!options.json) {
    fmt::print("{} threads, {} heads, {} KV heads, head_dim {}, pages of {}, cache in {}\n",
               options.threads, options.heads, options.kv_heads, options.head_dim,
               options.page_size, options.kv_cache_dtype);
    fmt::print("limits: read {:.1f} GB/s, fma256 {:.1f} GFLOP/s, fma512 {:.1f} GFLOP/s\n\n",
               limits.read_bandwidth * 1e-9, limits.fma_avx2 * 1e-9, limits.fma_avx512 * 1e-9);
    fmt::print("{:<18} {:<8} {:>4} {:>7} {:>11} {:>10} {:>6} {:>8} {:>6}\n", "kernel", "", "seqs",
               "context", "us/layer", "GFLOP/s", "of fma", "GB/s", "of read");
  }
  const auto report = [&](const KernelRow<AttentionKernels>& row, const char* kind, Problem& p) {
    const Timing timing = time_attention(*row.functions, p, team, options.seconds);
    const double flops = p.operations() / timing.median;
    const double bandwidth = p.bytes() / timing.median;
    const double limit = fma_limit(row.isa, limits);
    if (options.json) {
      results.push_back({{"kernel", row.name},
                         {"kind", kind},
                         {"seqs", p.batch().num_seqs()},
                         {"context", p.context},
                         {"seconds", timing.median},
                         {"flops", flops},
                         {"of_fma", limit > 0 ? flops / limit : 0.0},
                         {"bytes_per_second", bandwidth},
                         {"of_read", bandwidth / limits.read_bandwidth}});
      return;
    }
    fmt::print("{:<18} {:<8} {:>4} {:>7} {:>11.1f} {:>10.1f} {:>6.2f} {:>8.1f} {:>6.2f}\n",
               row.name, kind, p.batch().num_seqs(), p.context, timing.median * 1e6, flops * 1e-9,
               limit > 0 ? flops / limit : 0.0, bandwidth * 1e-9,
               bandwidth / limits.read_bandwidth);
  };
  const auto for_each_kernel = [&](const char* kind, Problem& p) {
    for (const KernelRow<AttentionKernels>& row : attention_kernels(options.kv_type())) {
      if (!row.supported(features) || (row.isa == Isa::scalar && !options.scalar)) continue;
      if (std::string(row.name).find(options.filter) == std::string::npos) continue;
      report(row, kind, p);
    }
  };
  for (const int length : options.prefill) {
    Problem p = make_problem(options, 1, length, length, 0);
    for_each_kernel("prefill", p);
  }
  for (const int seqs : options.decode_seqs) {
    for (const int context : options.decode) {
      const int64_t bytes = int64_t{context} * seqs * options.kv_heads * options.head_dim * 4;
      if (bytes > int64_t{4} << 30) continue;
      Problem p = make_problem(options, seqs, 1, context, options.megabytes);
      for_each_kernel("decode", p);
    }
  }
  if (options.json) fmt::print("{}\n", dump_json(results, 2));
}

}  // namespace
}  // namespace tw::bench

int main(int argc, char** argv) {
  tw::bench::Options options;
  CLI::App app("Attention against the machine's limits");
  app.add_flag("--json", options.json, "Print JSON instead of a table");
  app.add_option("--threads", options.threads, "Threads")->check(CLI::PositiveNumber);
  app.add_option("--kernel", options.filter, "Only kernels whose name contains this");
  app.add_option("--seconds", options.seconds, "Time for each measurement");
  app.add_option("--heads", options.heads, "Query heads");
  app.add_option("--kv-heads", options.kv_heads, "KV heads");
  app.add_option("--head-dim", options.head_dim, "Dimensions of a head");
  app.add_option("--page-size", options.page_size, "Tokens in a page");
  app.add_option("--prefill", options.prefill, "Lengths of prompts");
  app.add_option("--decode", options.decode, "Lengths of contexts");
  app.add_option("--decode-seqs", options.decode_seqs, "Sequences that decode at once");
  app.add_option("--megabytes", options.megabytes, "Cache that decode streams");
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype, "bf16 or fp8_e4m3")
      ->check(CLI::IsMember({"bf16", "fp8_e4m3"}));
  app.add_flag("--scalar", options.scalar, "Measure the scalar kernel, too");
  CLI11_PARSE(app, argc, argv);
  tw::bench::run(options);
  return 0;
}
