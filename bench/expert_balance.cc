// What does it bring to place experts by how often they are chosen? A simulation, with the engine's
// own placement and dispatch: tokens choose experts by a Zipf law; the first half of the trace is
// counted, the second half takes its steps. Every group's part of a step costs
//
//   experts touched + row_cost * rows
//
// in units of reading one expert's weights, and the step lasts as long as its busiest group.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "core/json.h"
#include "kernels/moe/dispatch.h"
#include "parallel/expert_placement.h"

namespace tw::bench {
namespace {

struct Options {
  int32_t num_experts = 256;
  int32_t top_k = 8;
  double zipf = 1.0;
  double row_cost = 0.02;
  int64_t num_tokens = 1 << 15;
  int32_t num_redundant = 32;
};

struct Trace {
  std::vector<int32_t> experts;  // [tokens, top_k]
  std::vector<float> weights;
};

// Without replacement, in proportion to popularity: the largest of log-popularities plus Gumbel
// noise.
Trace make_trace(const Options& options, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> log_popularity;
  for (int32_t rank = 1; rank <= options.num_experts; ++rank) {
    log_popularity.push_back(-options.zipf * std::log(rank));
  }
  std::ranges::shuffle(log_popularity, random);
  std::uniform_real_distribution<double> uniform(1e-12, 1.0);
  std::vector<double> keys(log_popularity.size());
  std::vector<int32_t> order(keys.size());
  Trace trace;
  for (int64_t token = 0; token < options.num_tokens; ++token) {
    for (size_t e = 0; e < keys.size(); ++e) {
      keys[e] = log_popularity[e] - std::log(-std::log(uniform(random)));
    }
    std::iota(order.begin(), order.end(), 0);
    std::ranges::partial_sort(order, order.begin() + options.top_k, std::ranges::greater{},
                              [&](int32_t e) { return keys[static_cast<size_t>(e)]; });
    for (int32_t j = 0; j < options.top_k; ++j) {
      trace.experts.push_back(order[static_cast<size_t>(j)]);
      trace.weights.push_back(static_cast<float>(uniform(random)));
    }
  }
  return trace;
}

// The mean over steps of `batch` tokens each, over the second half of the trace.
double simulate(const Options& options, const Trace& trace, const ExpertPlacement& placement,
                int64_t batch) {
  const int64_t half = options.num_tokens / 2, num_steps = half / batch;
  const auto num_groups = static_cast<size_t>(placement.num_groups());
  std::vector<std::vector<double>> costs(num_groups);
  for (size_t g = 0; g < num_groups; ++g) {
    const auto dispatch =
        kernels::make_dispatch(placement.num_experts, placement.slots, static_cast<int32_t>(g));
    Trace kept = trace;
    kernels::Routing routing;
    routing.top_k = options.top_k;
    routing.experts = kept.experts.data();
    routing.weights = kept.weights.data();
    kernels::keep_own_choices(dispatch, routing, {half, options.num_tokens});
    for (int64_t step = 0; step < num_steps; ++step) {
      std::vector<bool> touched(placement.slots[g].size(), false);
      int64_t rows = 0;
      const int64_t first = (half + step * batch) * options.top_k;
      for (int64_t i = first; i < first + batch * options.top_k; ++i) {
        const int32_t slot = routing.experts[i];
        if (slot == kernels::kElsewhere) continue;
        touched[static_cast<size_t>(slot)] = true;
        ++rows;
      }
      costs[g].push_back(static_cast<double>(std::ranges::count(touched, true)) +
                         options.row_cost * static_cast<double>(rows));
    }
  }
  double sum = 0;
  for (int64_t step = 0; step < num_steps; ++step) {
    double busiest = 0;
    for (const auto& of_group : costs) {
      busiest = std::max(busiest, of_group[static_cast<size_t>(step)]);
    }
    sum += busiest;
  }
  return sum / static_cast<double>(num_steps);
}

int run(const Options& options, bool as_json) {
  const Trace trace = make_trace(options, 1);
  std::vector<int64_t> counts(static_cast<size_t>(options.num_experts));
  for (int64_t i = 0; i < options.num_tokens / 2 * options.top_k; ++i) {
    ++counts[static_cast<size_t>(trace.experts[static_cast<size_t>(i)])];
  }
  Json rows = Json::array();
  if (!as_json) {
    fmt::print("{} experts, {} per token, Zipf {}, {} redundant, a row costs {} of an expert\n",
               options.num_experts, options.top_k, options.zipf, options.num_redundant,
               options.row_cost);
    fmt::print("{:>6} {:>6} | {:>9} {:>9} {:>9} | {:>9} {:>9}\n", "groups", "batch", "unplaced",
               "placed", "copies", "placed", "copies");
  }
  for (const int num_groups : {2, 4, 8}) {
    const ExpertSlots plain{options.num_experts, num_groups, 0};
    const ExpertSlots copies{options.num_experts, num_groups, options.num_redundant};
    const ExpertPlacement layouts[] = {place_experts(plain, {}), place_experts(plain, counts),
                                       place_experts(copies, counts)};
    for (const int64_t batch : {1, 8, 64, 512}) {
      double cost[3];
      for (int i = 0; i < 3; ++i) cost[i] = simulate(options, trace, layouts[i], batch);
      rows.push_back({{"groups", num_groups},
                      {"batch", batch},
                      {"unplaced", cost[0]},
                      {"placed", cost[1]},
                      {"copies", cost[2]}});
      if (as_json) continue;
      fmt::print("{:>6} {:>6} | {:>9.2f} {:>9.2f} {:>9.2f} | {:>8.0f}% {:>8.0f}%\n", num_groups,
                 batch, cost[0], cost[1], cost[2], 100 * (cost[1] / cost[0] - 1),
                 100 * (cost[2] / cost[0] - 1));
    }
  }
  if (as_json) fmt::print("{}\n", dump_json(rows, 2));
  return 0;
}

}  // namespace
}  // namespace tw::bench

int main(int argc, char** argv) {
  CLI::App app{"Simulates steps of a mixture whose experts are chosen by a Zipf law"};
  tw::bench::Options options;
  bool as_json = false;
  app.add_option("--experts", options.num_experts)->check(CLI::Range(8, 1024));
  app.add_option("--top-k", options.top_k)->check(CLI::Range(1, 64));
  app.add_option("--zipf", options.zipf, "Exponent: 0 is even");
  app.add_option("--row-cost", options.row_cost, "Of a row's products, by reading an expert");
  app.add_option("--redundant", options.num_redundant)->check(CLI::Range(0, 1024));
  app.add_option("--tokens", options.num_tokens)->check(CLI::Range(1024, 1 << 22));
  app.add_flag("--json", as_json);
  CLI11_PARSE(app, argc, argv);
  return tw::bench::run(options, as_json);
}
