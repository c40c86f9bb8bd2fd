// `tilewright bench machine`: what can this machine do? Read bandwidth and arithmetic rates with 1
// thread and with all.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "apps/bench/bench_commands.h"
#include "apps/bench/machine_json.h"
#include "apps/commands.h"
#include "core/machine_limits.h"
#include "core/memory.h"
#include "core/topology.h"

namespace tw {
namespace {

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

std::vector<int> team_sizes(int max_threads) {
  std::vector<int> sizes = {1};
  if (max_threads > 1) sizes.push_back(max_threads);
  return sizes;
}

std::string team_name(int threads) {
  return fmt::format("{} threads", threads);
}

void print(const Json& json, int max_threads) {
  fmt::print("{} ({})\n", json["cpu"].get<std::string>(), json["features"].get<std::string>());
  for (const int threads : team_sizes(max_threads)) {
    for (const Row& row : kRows) {
      const double value = json[team_name(threads)][row.name].get<double>();
      if (value == 0) continue;
      fmt::print("{:2} thread{} {:24} {:9.1f} {}\n", threads, threads == 1 ? " " : "s", row.name,
                 value / 1e9, row.value == &MachineLimits::read_bandwidth ? "GB/s" : "GOP/s");
    }
  }
}

}  // namespace

Expected<Json> measure_machine_json(int max_threads, double seconds) {
  const auto features = usable_cpu_features();
  if (!features) return tl::unexpected(features.error());
  Json json = {{"cpu", cpu_model_name()},
               {"features", features->describe()},
               {"memory bytes", detect_memory_limits().total},
               {"memory nodes", detect_topology().nodes.size()}};
  const std::vector<int> cpus = usable_cpus();  // before this thread is pinned to one of them
  for (const int threads : team_sizes(max_threads)) {
    ThreadTeam team(threads, cpus);
    team.pin_caller();
    const MachineLimits limits = measure_machine(team, *features, {.seconds_each = seconds});
    for (const Row& row : kRows) json[team_name(threads)][row.name] = limits.*row.value;
  }
  return json;
}

void add_bench_machine_command(CLI::App& bench, int& exit_code) {
  struct Options {
    bool json = false;
    int threads = usable_cpu_count();
    double seconds = 0.3;
  };
  auto* command = bench.add_subcommand("machine", "Measure what this machine can do at most");
  auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "Write JSON, which tilewright plan --machine reads");
  command->add_option("--threads", options->threads, "Threads of the larger team")
      ->check(CLI::Range(1, usable_cpu_count()))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "Time for each figure")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  command->callback([options, &exit_code] {
    const auto json = measure_machine_json(options->threads, options->seconds);
    if (!json) {
      exit_code = report(json.error());
    } else if (options->json) {
      fmt::print("{}\n", dump_json(*json, 2));
    } else {
      print(*json, options->threads);
    }
  });
}

}  // namespace tw
