// The commands of the `tilewright` program. Each declares itself on the command line and returns
// the process's exit code: 0, or 2 for input that cannot be right, or 1 for a failure on the way.
#pragma once

#include <CLI/CLI.hpp>

#include "core/status.h"

namespace tw {

// Each adds a subcommand whose callback stores the exit code in `exit_code`.
void add_serve_command(CLI::App& app, int& exit_code);
void add_router_command(CLI::App& app, int& exit_code);
void add_generate_command(CLI::App& app, int& exit_code);
void add_chat_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
void add_plan_command(CLI::App& app, int& exit_code);
void add_inspect_command(CLI::App& app, int& exit_code);
void add_evaluate_command(CLI::App& app, int& exit_code);
void add_convert_command(CLI::App& app, int& exit_code);
void add_quantize_command(CLI::App& app, int& exit_code);

// Prints the error as "tilewright: ..." on stderr and returns the exit code that fits it.
int report(const Error& error);

}  // namespace tw
