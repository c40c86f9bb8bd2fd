// What can this machine do? Read bandwidth and arithmetic rates with 1 thread and with all.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "core/json.h"
#include "machine_limits.h"

namespace tw::bench {
namespace {

int run(bool as_json, int max_threads, double seconds) {
  const auto features = usable_cpu_features();
  if (!features) {
    fmt::print(stderr, "{}\n", features.error().message);
    return 2;
  }
  struct Row {
    const char* name;
    double MachineLimits::*value;
  };
  constexpr Row kRows[] = {
      {"read bandwidth", &MachineLimits::read_bandwidth},
      {"AVX2 fp32 FMA", &MachineLimits::fma_avx2},
      {"AVX-512 fp32 FMA", &MachineLimits::fma_avx512},
      {"AVX2 int8 maddubs", &MachineLimits::maddubs_avx2},
      {"AVX-512 int8 dpbusd", &MachineLimits::dpbusd_avx512},
      {"AVX-512 bf16 dpbf16ps", &MachineLimits::dpbf16_avx512},
      {"AMX int8", &MachineLimits::amx_int8},
      {"AMX bf16", &MachineLimits::amx_bf16},
  };
  Json json = {{"cpu", cpu_model_name()}, {"features", features->describe()}};
  if (!as_json) fmt::print("{} ({})\n", cpu_model_name(), features->describe());
  std::vector<int> counts = {1};
  if (max_threads > 1) counts.push_back(max_threads);
  const std::vector<int> cpus = usable_cpus();  // before this thread is pinned to one of them
  for (int threads : counts) {
    ThreadTeam team(threads, cpus);
    team.pin_caller();
    const MachineLimits limits = measure_machine(team, *features, seconds);
    for (const Row& row : kRows) {
      json[fmt::format("{} threads", threads)][row.name] = limits.*row.value;
      if (as_json || limits.*row.value == 0) continue;
      fmt::print("{:2} thread{} {:24} {:9.1f} {}\n", threads, threads == 1 ? " " : "s", row.name,
                 limits.*row.value / 1e9,
                 row.value == &MachineLimits::read_bandwidth ? "GB/s" : "GOP/s");
    }
  }
  if (as_json) fmt::print("{}\n", dump_json(json, 2));
  return 0;
}

}  // namespace
}  // namespace tw::bench

int main(int argc, char** argv) {
  CLI::App app("Measures what this machine can do at most");
  bool as_json = false;
  int threads = tw::usable_cpu_count();
  double seconds = 0.3;
  app.add_flag("--json", as_json, "Write JSON instead of a table");
  app.add_option("--threads", threads, "Threads of the larger team")
      ->check(CLI::Range(1, tw::usable_cpu_count()));
  app.add_option("--seconds", seconds, "Time for each figure")->check(CLI::Range(0.01, 60.0));
  CLI11_PARSE(app, argc, argv);
  return tw::bench::run(as_json, threads, seconds);
}
