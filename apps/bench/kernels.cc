// `tilewright bench kernels`: how near does each GEMM kernel come to the machine's limit?
//
// Decode: one row times weights that come from memory, against the read bandwidth. Prefill: many
// rows, against the rate of the instruction that the kernel is made of. Every kernel of the table
// that this machine supports is measured, in one run with the limits.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/bench/bench_commands.h"
#include "apps/commands.h"
#include "core/check.h"
#include "core/json.h"
#include "core/machine_limits.h"
#include "core/measure.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/unpack.h"

namespace tw::bench {
namespace {

using namespace tw::kernels;

struct Options {
  bool json = false;
  int threads = usable_cpu_count();
  std::string filter;  // part of a kernel's name
  double seconds = 0.5;
  int64_t n = 8192;
  int64_t k = 8192;
  int64_t decode_rows = 1;
  int64_t prefill_n = 8192;
  int64_t prefill_k = 2048;
  int64_t prefill_rows = 512;
  size_t megabytes = 1024;  // of weights that decode streams
  bool scalar = false;
};

struct Limit {
  const char* name;
  double per_second;
};

Limit arithmetic_limit(const GemmKernel& kernel, const MachineLimits& limits) {
  const bool integer =
      kernel.activations == ActivationFormat::q8 || kernel.activations == ActivationFormat::int8;
  switch (kernel.isa) {
    case Isa::scalar:
      return {"none", 0};
    case Isa::avx2:
      return integer ? Limit{"maddubs", limits.maddubs_avx2} : Limit{"fma256", limits.fma_avx2};
    case Isa::avx512:
      if (integer) return {"dpbusd", limits.dpbusd_avx512};
      if (kernel.activations == ActivationFormat::f32) return {"fma512", limits.fma_avx512};
      return {"dpbf16", limits.dpbf16_avx512};
    case Isa::amx:
      return integer ? Limit{"amx-int8", limits.amx_int8} : Limit{"amx-bf16", limits.amx_bf16};
  }
  return {"none", 0};
}

// Copies of one random weight, so that together they are far larger than the caches.
std::vector<PackedWeight> make_weights(WeightFormat format, int64_t n, int64_t k, size_t bytes) {
  std::vector<PackedWeight> weights;
  auto first = random_weight(format, n, k, 1);
  TW_CHECK(first.has_value());
  const size_t size = first->size_bytes();
  weights.push_back(std::move(*first));
  while (weights.size() * size < bytes) {
    auto copy = PackedWeight::allocate(format, n, k);
    TW_CHECK(copy.has_value());
    std::memcpy(copy->panel(0), weights[0].panel(0), size);
    weights.push_back(std::move(*copy));
  }
  return weights;
}

// One timed call: preparation and multiplication by the whole team, as a plan would do it.
Timing time_kernel(const GemmKernel& kernel, const std::vector<PackedWeight>& weights, int64_t m,
                   ThreadTeam& team, double seconds) {
  const int64_t n = weights[0].n(), k = weights[0].k();
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> a(static_cast<size_t>(m * k));
  for (float& x : a) x = normal(random);
  std::vector<float> c(static_cast<size_t>(m * n));
  auto memory = Buffer::allocate(prepared_activations_size(kernel.activations, m, k));
  TW_CHECK(memory.has_value());
  GemmArguments arguments;
  arguments.a = layout_prepared_activations(kernel.activations, m, k, memory->data());
  arguments.c = dense_matrix(c.data(), m, n);
  size_t next = 0;
  return measure(seconds, 3, [&] {
    arguments.weight = &weights[next++ % weights.size()];
    team.run([&](const TeamMember& member) {
      kernel.prepare({a.data(), m, k, k}, member.share(m), arguments.a);
      member.barrier();
      kernel.run(arguments, member.share(arguments.weight->num_panels()));
    });
  });
}

Status run(const Options& options) {
  const auto features = usable_cpu_features();
  if (!features) return tl::unexpected(features.error());
  ThreadTeam team(options.threads, usable_cpus());
  team.pin_caller();
  const MachineLimits limits = measure_machine(team, *features, {.seconds_each = 0.2});
  Json rows = Json::array();
  const auto report = [&](const GemmKernel& kernel, const char* phase, int64_t m, int64_t n,
                          int64_t k, Timing timing, double amount, Limit limit) {
    const double rate = amount / timing.median;
    const double share = limit.per_second > 0 ? rate / limit.per_second : 0;
    rows.push_back({{"kernel", kernel.name},
                    {"phase", phase},
                    {"m", m},
                    {"n", n},
                    {"k", k},
                    {"median_seconds", timing.median},
                    {"best_seconds", timing.best},
                    {"per_second", rate},
                    {"limit", limit.name},
                    {"share", share}});
    if (options.json) return;
    fmt::print(
        "{:18} {:8} {:4} x {:5} x {:5} {:9.3f} ms {:8.1f} {:4} {:4.0f}% (best {:3.0f}%) of {}\n",
        kernel.name, phase, m, n, k, timing.median * 1e3, rate / 1e9,
        limit.name == std::string_view("memory") ? "GB/s" : "GOP/s", share * 100,
        share * 100 * timing.median / timing.best, limit.name);
  };

  if (!options.json) {
    fmt::print(
        "{}, {} threads: {:.1f} GB/s read; GOP/s: maddubs {:.0f}, fma256 {:.0f}, fma512 "
        "{:.0f}, dpbusd {:.0f}, dpbf16 {:.0f}, amx int8 {:.0f}, amx bf16 {:.0f}\n",
        cpu_model_name(), options.threads, limits.read_bandwidth / 1e9, limits.maddubs_avx2 / 1e9,
        limits.fma_avx2 / 1e9, limits.fma_avx512 / 1e9, limits.dpbusd_avx512 / 1e9,
        limits.dpbf16_avx512 / 1e9, limits.amx_int8 / 1e9, limits.amx_bf16 / 1e9);
  }
  for (WeightFormat format : kAllWeightFormats) {
    std::vector<const GemmKernel*> kernels;
    for (const GemmKernel& kernel : gemm_kernels()) {
      const bool wanted = kernel.format == format && kernel.supported(*features) &&
                          (options.scalar || kernel.isa != Isa::scalar) &&
                          std::string_view(kernel.name).find(options.filter) != std::string::npos;
      if (wanted) kernels.push_back(&kernel);
    }
    if (kernels.empty()) continue;
    if (options.decode_rows > 0) {
      const auto weights = make_weights(format, options.n, options.k, options.megabytes << 20);
      for (const GemmKernel* kernel : kernels) {
        const Timing timing =
            time_kernel(*kernel, weights, options.decode_rows, team, options.seconds);
        report(*kernel, "decode", options.decode_rows, options.n, options.k, timing,
               static_cast<double>(weights[0].size_bytes()), {"memory", limits.read_bandwidth});
      }
    }
    if (options.prefill_rows > 0) {
      const auto weights = make_weights(format, options.prefill_n, options.prefill_k, 1);
      for (const GemmKernel* kernel : kernels) {
        const Timing timing =
            time_kernel(*kernel, weights, options.prefill_rows, team, options.seconds);
        const double operations = 2.0 * static_cast<double>(options.prefill_rows) *
                                  static_cast<double>(options.prefill_n) *
                                  static_cast<double>(options.prefill_k);
        report(*kernel, "prefill", options.prefill_rows, options.prefill_n, options.prefill_k,
               timing, operations, arithmetic_limit(*kernel, limits));
      }
    }
  }
  if (options.json) {
    fmt::print("{}\n", dump_json({{"cpu", cpu_model_name()},
                                  {"threads", options.threads},
                                  {"read_bandwidth", limits.read_bandwidth},
                                  {"rows", rows}},
                                 2));
  }
  return {};
}

}  // namespace
}  // namespace tw::bench

namespace tw {

void add_bench_kernels_command(CLI::App& bench, int& exit_code) {
  auto* command = bench.add_subcommand(
      "kernels", "Measure every kernel of matrix products against the machine's limits");
  auto options = std::make_shared<bench::Options>();
  const auto option = [&](const char* flags, auto& value, const char* help) {
    return command->add_option(flags, value, help)->capture_default_str();
  };
  command->add_flag("--json", options->json, "Write JSON instead of a table");
  option("--threads", options->threads, "Threads")->check(CLI::Range(1, usable_cpu_count()));
  option("--kernel", options->filter, "Only kernels whose name contains this");
  option("--seconds", options->seconds, "Time for each row of the table")
      ->check(CLI::Range(0.001, 60.0));
  constexpr int64_t kMost = int64_t{1} << 24;
  option("--n", options->n, "Output channels in decode")->check(CLI::Range(int64_t{1}, kMost));
  option("--k", options->k, "Depth in decode")->check(CLI::Range(int64_t{1}, kMost));
  option("--decode-rows", options->decode_rows, "Rows in decode; 0 leaves it out")
      ->check(CLI::Range(int64_t{0}, kMost));
  option("--prefill-n", options->prefill_n, "Output channels in prefill")
      ->check(CLI::Range(int64_t{1}, kMost));
  option("--prefill-k", options->prefill_k, "Depth in prefill")
      ->check(CLI::Range(int64_t{1}, kMost));
  option("--prefill-rows", options->prefill_rows, "Rows in prefill; 0 leaves it out")
      ->check(CLI::Range(int64_t{0}, kMost));
  option("--megabytes", options->megabytes, "Weights that decode streams")
      ->check(CLI::Range(size_t{1}, size_t{1} << 20));
  command->add_flag("--scalar", options->scalar, "Scalar kernels as well (slow)");
  command->callback([options, &exit_code] {
    if (Status status = bench::run(*options); !status) exit_code = report(status.error());
  });
}

}  // namespace tw
