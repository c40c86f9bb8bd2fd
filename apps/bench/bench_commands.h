// What `tilewright bench` measures, a file each.
#pragma once

#include <CLI/CLI.hpp>

namespace tw {

// Prefill and decode of a model, nothing around it.
void add_bench_latency_command(CLI::App& bench, int& exit_code);
// The kernels of matrix products against the machine's limits.
void add_bench_kernels_command(CLI::App& bench, int& exit_code);
// The machine's limits.
void add_bench_machine_command(CLI::App& bench, int& exit_code);
// A server under load.
void add_bench_serve_command(CLI::App& bench, int& exit_code);

}  // namespace tw
