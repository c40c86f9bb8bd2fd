// What a load says of a server: figures by the names that SGLang's bench_serving gives them, and a
// picture of their distributions.
#pragma once

#include <span>
#include <string>

#include "apps/bench/load_client.h"
#include "core/json.h"

namespace tw {

// TTFT: time to first token. TPOT: time per output token after it. ITL: between pieces of text.
Json load_figures(std::span<const LoadTiming> timings, double duration);

std::string load_table(const Json& figures);

// An SVG: of TTFT, TPOT and the whole latency, which share of the requests took at most how long.
std::string load_plot(std::span<const LoadTiming> timings, const std::string& title);

// Between the two nearest values, as numpy does. `values` are sorted.
double percentile(std::span<const double> values, double share);

}  // namespace tw
